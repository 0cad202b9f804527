#pragma once
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "orrery/communicator.h"
#include "plan/cost_table.h"

namespace orrery {

struct WireBench {
    std::string transport;
    double budget_s = 10;  ///< of wall time, for all rows
    std::vector<int64_t> bytes;
    std::chrono::milliseconds limit{60'000};  ///< of a wait for another member
};

/// What each collective and a message take, by size, in this order: on member 0; nothing elsewhere. Calls follow each
/// other, so that members are together; the median over blocks of calls, of the mean of the members. A message is half
/// of its way there and back between members 0 and 1. `arena`: memory that the communicator was made with, of at least
/// wire_bytes(). Collective.
std::vector<WireCost> measure_wires(Communicator& communicator, Rendezvous& rendezvous, const Memory& arena,
                                    const WireBench& bench);

/// Of the arena.
int64_t wire_bytes(const WireBench& bench, int64_t ranks);

/// 1 KiB to 64 MiB, each four times the last.
std::vector<int64_t> usual_wire_bytes();

}  // namespace orrery
