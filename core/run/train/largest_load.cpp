#include "run/train/largest_load.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <vector>

#include "compile/capacity.h"
#include "plan/access.h"

namespace orrery {
namespace {

struct Load {
    float load = 0;
    ValueId value = none;
    int64_t element = 0;  ///< index along the value's last dim
};

bool has_load(const Value& value) {
    return value.role == Role::temporary && value.type.dtype == DType::f32 && value.name.ends_with(load_suffix);
}

/// Reads each load where an instruction reads it.
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
            found = found || (reads && operand.value != none && has_load(value(operand)));
        });
        return found;
    }
    void before(int index) override {
        device_.synchronize(0);
        for_each_access(class_, at(index), [&](const Operand& operand, bool reads, bool) {
            if (reads && operand.value != none && has_load(value(operand)))
                take(operand.value, executor_.operand(index, &operand - at(index).operands.data()));
        });
    }
    void after(int) override {}
    const Load& largest() const { return largest_; }

private:
    const Instruction& at(int index) const { return class_.stream[static_cast<size_t>(index)]; }
    const Value& value(const Operand& operand) const { return executor_.plan().program.value(operand.value); }

    void take(ValueId id, const Tensor& there) {
        copy_.resize(static_cast<size_t>(there.count()));
        device_.copy(0, copy_.data(), there.data, there.bytes());
        device_.synchronize(0);
        const Plan& plan = executor_.plan();
        const Value& value = plan.program.value(id);
        const int64_t first = value.layout.offset(value.type.shape, plan.mesh, rank_).back();
        const auto elements = static_cast<int64_t>(there.shape.back());
        for (int64_t i = 0; i < std::ssize(copy_); ++i)
            if (copy_[i] > largest_.load) largest_ = {copy_[i], id, first + i % elements};
    }

    Device& device_;
    Executor& executor_;
    const int64_t rank_;
    const RankClass& class_;
    std::vector<float> copy_;
    Load largest_;
};

Load load_of(const std::string& text) {
    char* end = nullptr;
    Load load;
    load.load = std::strtof(text.c_str(), &end);
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
         session.exchange("largest load", fmt::format("{} {} {}", mine.load, mine.value, mine.element)))
        if (const Load one = load_of(text); one.load > largest.load) largest = one;
    if (largest.value == none) return "";
    const Value& value = executor.plan().program.value(largest.value);
    const std::string dim = value.dims.back().empty() ? "element" : value.dims.back();
    return fmt::format("{} {} of {} has a load of {:g}", dim, largest.element,
                       value.name.substr(0, value.name.size() - load_suffix.size()), largest.load);
}

}  // namespace orrery
