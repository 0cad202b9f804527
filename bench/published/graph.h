#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "orrery/plan.h"
#include "published/words.h"

namespace orrery::published {

/// Something with a price: a launch, a collective, a message, or what is left of a collective beside its products.
struct Priced {
    enum class Kind : uint8_t { kernel, copy, collective, message, beside };
    Kind kind = Kind::kernel;
    KernelSpec spec;
    Opcode opcode = Opcode::all_reduce;
    AxisId axis = none;
    int64_t bytes = 0;
    int64_t from = 0, to = 0;    ///< message: ranks; collective: `from` is one of the group
    std::vector<int64_t> alike;  ///< collective, message: Prices
    int of = none;               ///< beside: the collective that is cut in chunks,
    std::vector<int> products;   ///< and the kernels that run meanwhile
};

/// A plan condensed to what its time depends on: nodes that take the sum of some prices and begin when others are over.
/// The order of issue, lanes and waits of the plan, as plan/replay has them for a transport that queues, one lane a
/// communicator; what follows each other without a choice is one node.
struct Graph {
    struct Node {
        int duration = 0;         ///< of durations
        int first = 0, last = 0;  ///< its predecessors in `before`
    };
    std::vector<Priced> prices;
    std::vector<std::vector<std::pair<int, float>>> durations;  ///< (price, how often)
    std::vector<Node> nodes;                                    ///< predecessors come first
    std::vector<int> before;
    int64_t peak_bytes = 0;  ///< arenas of the rank that takes most
    double launches = 0;

    /// Seconds of a step, given those of each price. `weights`, where not null, becomes d step / d price.
    double play(const std::vector<double>& seconds, std::vector<double>* weights = nullptr) const;
};

/// Whose waits a graph has.
enum class Waits : uint8_t {
    planned,  ///< the plan's own: what core/sim/simulate plays
    /// The rows' software's. Kernels wait for what they read, and not because a plan uses the place of a message again,
    /// whose arena has no room to spare; what is reduced over tp or pp once a step holds up no fragment; data
    /// parallelism goes beside kernels where the words say so, else behind them; and kernels wait for what 1F1B sends.
    software,
};

Graph condense(const Plan& plan, const Words& words, Waits waits = Waits::software);

}  // namespace orrery::published
