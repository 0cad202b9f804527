#include "run/train/largest_load.h"

#include <fmt/format.h>

#include <cassert>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "compile/capacity.h"
#include "plan/access.h"

namespace orrery {
namespace {

struct Load {
    float above = 0;  ///< load minus its limit
    float load = 0;
    ValueId value = none;
    int64_t element = 0;  ///< index along the value's last dim
};

/// The name of the load that a value is, or is minus its limit; otherwise "".
std::string_view load_of(const Value& value) {
    if (value.role != Role::temporary || value.type.dtype != DType::f32 || !load_scope(value.name)) return "";
    std::string_view name = value.name;
    if (name.ends_with(above_ending)) name.remove_suffix(above_ending.size());
    return name;
}

/// Reads each load, and each load minus its limit, where an instruction reads it.
class LoadReader final : public Observer {
public:
    LoadReader(Session& session, Executor& executor)
        : device_(session.device()),
          executor_(executor),
          rank_(session.job().rank),
          class_(executor.plan().class_of(rank_)) {}

    bool looks(int index) const override {
        bool found = false;
        for_each_access(class_, at(index), [&](const Operand& operand, bool reads, bool) {
            found = found || (reads && operand.value != none && !load_of(value(operand)).empty());
        });
        return found;
    }
    void before(int index) override {
        device_.synchronize(0);
        for_each_access(class_, at(index), [&](const Operand& operand, bool reads, bool) {
            if (reads && operand.value != none && !load_of(value(operand)).empty())
                take(operand.value, executor_.operand(index, &operand - at(index).operands.data()));
        });
    }
    void after(int) override {}
    const Load& largest() const { return largest_; }

private:
    const Instruction& at(int index) const { return class_.stream[static_cast<size_t>(index)]; }
    const Value& value(const Operand& operand) const { return executor_.plan().program.value(operand.value); }

    void take(ValueId id, const Tensor& there) {
        std::vector<float> copy(static_cast<size_t>(there.count()));
        device_.copy(0, copy.data(), there.data, there.bytes());
        device_.synchronize(0);
        const Plan& plan = executor_.plan();
        const Value& value = plan.program.value(id);
        std::vector<float>& loads = loads_[load_of(value)];
        if (load_of(value) == value.name) {
            loads = std::move(copy);
            return;
        }
        const int64_t first = value.layout.offset(value.type.shape, plan.mesh, rank_).back();
        const auto elements = static_cast<int64_t>(there.shape.back());
        assert(loads.size() == copy.size());
        for (int64_t i = 0; i < std::ssize(copy); ++i)
            if (copy[i] > largest_.above) largest_ = {copy[i], loads[i], id, first + i % elements};
    }

    Device& device_;
    Executor& executor_;
    const int64_t rank_;
    const RankClass& class_;
    std::map<std::string_view, std::vector<float>> loads_;  ///< by name
    Load largest_;
};

Load load_in(const std::string& text) {
    char* end = nullptr;
    Load load;
    load.above = std::strtof(text.c_str(), &end);
    load.load = std::strtof(end, &end);
    load.value = static_cast<ValueId>(std::strtoll(end, &end, 10));
    load.element = std::strtoll(end, &end, 10);
    return load;
}

}  // namespace

std::string largest_load(Session& session, Executor& executor) {
    LoadReader reader(session, executor);
    executor.run(reader);
    const Load& mine = reader.largest();
    Load largest;
    for (const std::string& text :
         session.exchange("largest load", fmt::format("{} {} {} {}", mine.above, mine.load, mine.value, mine.element)))
        if (const Load one = load_in(text); one.above > largest.above) largest = one;
    if (largest.value == none) return "";
    const Value& value = executor.plan().program.value(largest.value);
    const std::string dim = value.dims.back().empty() ? "element" : value.dims.back();
    const std::string_view scope = load_scope(value.name).value_or("");
    return fmt::format("{} {}{}{} has a load of {:g}, {:g} fit", dim, largest.element, scope.empty() ? "" : " of ",
                       scope, largest.load, largest.load - largest.above);
}

}  // namespace orrery
