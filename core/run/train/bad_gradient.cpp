#include "run/train/bad_gradient.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "ir/op.h"
#include "plan/access.h"
#include "run/checkpoint/save/nonfinite.h"
#include "run/verify/verify_gradients.h"

namespace orrery {
namespace {

/// The first param of a rank whose gradient is not finite: `bad` of its `elements`.
struct Found {
    ValueId param = none;
    int64_t bad = 0, elements = 0;
};

/// Reads each gradient before the update, which may overwrite it, and counts its values that are not finite.
class GradientReader final : public Observer {
public:
    GradientReader(Device& device, Executor& executor, const RankClass& rank_class)
        : device_(device), executor_(executor), class_(rank_class), program_(executor.plan().program) {}

    bool looks(int index) const override { return updates(at(index)); }
    void before(int index) override {
        device_.synchronize(0);
        for_each_access(class_, at(index), [&](const Operand& operand, bool reads, bool) {
            if (!reads || operand.value == none) return;
            const ValueId param = param_of(operand.value);
            if (param == none || (found_.param != none && param >= found_.param)) return;
            const Tensor& there = executor_.operand(index, static_cast<size_t>(&operand - at(index).operands.data()));
            if (const int64_t bad = count_diverged(on_host(there), false); bad > 0)
                found_ = {param, bad, there.count()};
        });
    }
    void after(int) override {}
    const Found& found() const { return found_; }

private:
    const Instruction& at(int index) const { return class_.stream[static_cast<size_t>(index)]; }
    bool updates(const Instruction& i) const {
        return i.opcode == Opcode::kernel && i.op != none && program_.op(i.op).phase == Phase::update;
    }

    /// Returns the param of which `value` is the gradient, also summed, cast or packed; none if it is not a gradient.
    ValueId param_of(ValueId value) const {
        const auto& grads = program_.grads();
        const auto gradient = [&](ValueId id) {
            return std::find_if(grads.begin(), grads.end(), [&](const auto& pair) { return pair.second == id; });
        };
        const ValueId term = before_messages(
            program_, value, [&](ValueId id) { return gradient(id) != grads.end(); },
            [](const Op& op) { return op_def(op.kind).moves != Moves::no || op_def(op.kind).casts; });
        const auto found = gradient(term);
        return found == grads.end() ? none : found->first;
    }

    Tensor on_host(const Tensor& there) {
        if (device_.limits().host_visible) return there;
        copy_.resize(static_cast<size_t>(there.bytes()));
        device_.copy(0, copy_.data(), there.data, there.bytes());
        device_.synchronize(0);
        Tensor here = there;
        here.data = copy_.data();
        return here;
    }

    Device& device_;
    Executor& executor_;
    const RankClass& class_;
    const Program& program_;
    std::vector<std::byte> copy_;
    Found found_;
};

Found parsed(const std::string& text) {
    char* end = nullptr;
    Found found;
    found.param = static_cast<ValueId>(std::strtoll(text.c_str(), &end, 10));
    found.bad = std::strtoll(end, &end, 10);
    found.elements = std::strtoll(end, &end, 10);
    return found;
}

}  // namespace

std::string first_bad_gradient(Session& session, Executor& executor) {
    const Plan& plan = executor.plan();
    GradientReader reader(session.device(), executor, plan.class_of(session.job().rank));
    executor.run(reader);
    const Found& mine = reader.found();
    const std::vector<std::string> all = session.exchange(
        "gradients that are not finite", fmt::format("{} {} {}", mine.param, mine.bad, mine.elements), WaitLimit::step);
    Found first;
    size_t first_rank = 0;
    for (size_t rank = 0; rank < all.size(); ++rank) {
        const Found one = parsed(all[rank]);
        if (one.param == none || (first.param != none && one.param >= first.param)) continue;
        first = one;
        first_rank = rank;
    }
    if (first.param == none) return "";
    return fmt::format("{} ({} of {} elements on rank {})", plan.program.value(first.param).name, first.bad,
                       first.elements, first_rank);
}

}  // namespace orrery
