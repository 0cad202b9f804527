#pragma once
#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "plan/replay/plan_view.h"
#include "sim/prices.h"

namespace orrery {

/// What Prices are asked about a launch, copy, collective or message.
struct Question {
    enum class Kind : uint8_t { kernel, copy, collective, message };
    Kind kind = Kind::kernel;
    const KernelSpec* spec = nullptr;  ///< kernel: the plan's
    Opcode opcode = Opcode::kernel;
    AxisId axis = none;
    int64_t bytes = 0;           ///< all but kernels
    int64_t rank = 0;            ///< whose work it is; of a message its sender
    int64_t to = 0;              ///< message
    bool mapped = false;         ///< message: a chunk of a collective, which goes through mapped buffers
    std::vector<int64_t> group;  ///< collective: by member
    std::vector<int64_t> alike;  ///< collective, message: as Prices has it

    Demand answered_by(Prices& prices) const;
};

/// What a plan's view asks, each question once and by number.
class Questions {
public:
    /// By class and by index in its stream: a collective goes through mapped buffers (SimulateOptions).
    using Mapped = std::vector<std::vector<char>>;
    /// Keeps references to all but `kinds`: Prices::kind by rank; empty: all alike.
    Questions(const Plan& plan, const PlanView& view, const Mapped& mapped, const std::vector<int>& kinds = {});
    /// Of a kernel or copy, one of those that an item of work stands for.
    int of_work(int actor, const Instruction& i);
    /// Of a collective or message. Costs a time linear in its ranks when it is new.
    int of_transfer(int item);
    const Question& at(int number) const { return all_[static_cast<size_t>(number)]; }
    int size() const { return static_cast<int>(all_.size()); }

private:
    int add(Question question);
    bool is_mapped(int item) const;
    Question transfer(int item, int64_t bytes, const std::vector<int>& actors, bool mapped) const;

    const Plan& plan_;
    const PlanView& view_;
    const Mapped& mapped_;
    std::vector<Question> all_;
    std::vector<size_t> rows_;                       ///< by actor: that of its class and kind of node
    std::vector<std::vector<int>> kernels_;          ///< by row and kernel
    std::map<std::pair<int, int64_t>, int> copies_;  ///< by actor and bytes
    std::map<std::tuple<AxisId, Opcode, int64_t, int, bool, std::vector<int>>, int> transfers_;
};

}  // namespace orrery
