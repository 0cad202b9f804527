#pragma once
#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "plan/replay/plan_view.h"
#include "sim/prices.h"

namespace orrery {

/// A question to Prices about a launch, copy, collective or message.
struct Question {
    enum class Kind : uint8_t { kernel, copy, collective, message };
    Kind kind = Kind::kernel;
    const KernelSpec* spec = nullptr;  ///< the plan's spec, for a kernel
    Opcode opcode = Opcode::kernel;
    AxisId axis = none;
    int64_t bytes = 0;           ///< bytes, for all but kernels
    int64_t rank = 0;            ///< the rank that does the work; for a message the sender
    int64_t to = 0;              ///< receiver, for a message
    bool mapped = false;         ///< for a message: whether it is a chunk of a collective through mapped buffers
    std::vector<int64_t> group;  ///< for a collective: ranks by member
    std::vector<int64_t> alike;  ///< for a collective or message: see Prices

    Demand answered_by(Prices& prices) const;
};

/// The distinct questions of a plan, numbered.
class Questions {
public:
    /// Whether a collective uses mapped buffers (SimulateOptions), by class and index in its stream.
    using Mapped = std::vector<std::vector<char>>;
    /// Keeps references to all arguments except `kinds`, which is Prices::kind by rank; empty: all ranks have the same.
    Questions(const Plan& plan, const PlanView& view, const Mapped& mapped, const std::vector<int>& kinds = {});
    /// Number of the question for a kernel or copy that an item of work represents.
    int of_work(int actor, const Instruction& i);
    /// Number of the question for a collective or message. A new question takes time linear in its ranks.
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
    std::vector<size_t> rows_;                       ///< row of the actor's class and kind of node, by actor
    std::vector<std::vector<int>> kernels_;          ///< questions by row and kernel
    std::map<std::pair<int, int64_t>, int> copies_;  ///< questions by actor and bytes
    std::map<std::tuple<AxisId, Opcode, int64_t, int, bool, std::vector<int>>, int> transfers_;
};

}  // namespace orrery
