#pragma once
#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "plan/replay/plan_view.h"
#include "sim/prices.h"

namespace orrery {

/// The arguments of a call of Prices for a launch, copy, collective or message.
struct Question {
    enum class Kind : uint8_t { kernel, copy, collective, message };
    Kind kind = Kind::kernel;
    const KernelSpec* spec = nullptr;  ///< for a kernel: its spec in the plan
    Opcode opcode = Opcode::kernel;
    AxisId axis = none;
    int64_t bytes = 0;           ///< size of a copy, collective or message
    int64_t rank = 0;            ///< the rank that does the work; for a message the sender
    int64_t to = 0;              ///< receiver, for a message
    bool mapped = false;         ///< for a message: whether it is a chunk of a collective through mapped buffers
    std::vector<int64_t> group;  ///< for a collective, also a mapped one: ranks by member
    std::vector<int64_t> alike;  ///< for a collective or message: ranks that issue one at the same time (Prices)

    Demand answered_by(Prices& prices) const;
};

/// The distinct questions to Prices about the work of a plan, numbered from 0, so that each is asked once.
class Questions {
public:
    /// Whether a collective uses mapped buffers (SimulateOptions), by rank class and index in the class's stream.
    using Mapped = std::vector<std::vector<char>>;
    /// Keeps references to all arguments except `kinds`: Prices::kind by rank; empty if all ranks have the same kind.
    Questions(const Plan& plan, const PlanView& view, const Mapped& mapped, const std::vector<int>& kinds = {});
    /// Returns the number of the question about an actor's kernel or copy. An actor represents ranks that act equally.
    int of_work(int actor, const Instruction& i);
    /// Returns the number of the question about a collective or message. Linear in its ranks if the question is new.
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
    std::vector<size_t> rows_;                       ///< row in kernels_, by actor; a row for each class and node kind
    std::vector<std::vector<int>> kernels_;          ///< number of the question, by row and kernel; none: not asked
    std::map<std::pair<int, int64_t>, int> copies_;  ///< number of the question, by actor and bytes
    std::map<std::tuple<AxisId, Opcode, int64_t, int, bool, std::vector<int>>, int> transfers_;
};

}  // namespace orrery
