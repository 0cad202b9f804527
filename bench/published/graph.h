#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "plan/network.h"
#include "plan/replay/dag.h"
#include "sim/kernel_prices.h"
#include "sim/questions.h"

namespace orrery::published {

/// Something with a price: a launch, a collective, a message.
struct Priced {
    Question::Kind kind = Question::Kind::kernel;
    KernelWork work;   ///< kernel: all that its price depends on
    std::string text;  ///< kernel: the first one's spec
    Opcode opcode = Opcode::kernel;
    AxisId axis = none;
    int64_t bytes = 0;
    int64_t from = 0, to = 0;    ///< message: ranks; collective: `from` is one of the group
    std::vector<int64_t> alike;  ///< collective, message: Prices
};

/// What core/sim/simulate asks of a plan and how its time comes of the answers, for a fit that asks thousands of times.
struct Graph {
    std::vector<Priced> prices;
    Dag dag;
};

/// Launches of equal work share a price; those that cost nothing (lays_out) have none.
Graph condense(const Plan& plan, const Network& contracts, const Questions::Mapped& mapped = {});

}  // namespace orrery::published
