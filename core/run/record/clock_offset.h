#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "orrery/communicator.h"

namespace orrery {

/// Nanoseconds to add to a rank's clock to get rank 0's clock, and the max error of that sum.
struct ClockOffset {
    int64_t ns = 0;
    int64_t error_ns = 0;
};

/// Identifies the clock that steady_clock reads, by the boot id of the running kernel. Processes with equal names have
/// the same clock. "": unknown.
std::string clock_name();

/// Returns the offset of this rank's clock. `clocks`: every rank's clock_name(), in rank order. On each clock other
/// than rank 0's, the first rank asks rank 0 for the time, a few times through the store; the fastest answer counts,
/// with an error of half its round trip (Cristian, Probabilistic clock synchronization, 1989). Collective; `name`
/// prefixes the keys and must be new in each call. `now`: this rank's clock, in ns. Throws as Rendezvous::get does.
ClockOffset clock_offset(Rendezvous& rendezvous, const std::string& name, int64_t rank,
                         const std::vector<std::string>& clocks, std::chrono::milliseconds timeout,
                         const std::function<int64_t()>& now);

}  // namespace orrery
