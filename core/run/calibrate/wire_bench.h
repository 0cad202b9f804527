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
    double budget_s = 10;  ///< wall time for all measurements
    std::vector<int64_t> bytes;
    bool threads = false;                     ///< members are threads of one process: count processor time by thread
    std::chrono::milliseconds limit{60'000};  ///< max wait for another member
};

/// Times each collective and a message by size; returns rows of a cost table on member 0, nothing on the others. Calls
/// follow each other directly, so that members stay in step. A time is the mean over members, and of these means the
/// median over blocks of calls. A message takes half of a round trip between members 0 and 1. `arena`: memory of at
/// least wire_bytes() that the communicator was made with. Collective.
std::vector<WireCost> measure_wires(Communicator& communicator, Rendezvous& rendezvous, const Memory& arena,
                                    const WireBench& bench);

/// Bytes of arena that the measurements need.
int64_t wire_bytes(const WireBench& bench, int64_t ranks);

/// The usual message sizes: 1 KiB to 64 MiB, growing by a factor of four.
std::vector<int64_t> usual_wire_bytes();

}  // namespace orrery
