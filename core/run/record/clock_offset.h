#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "orrery/communicator.h"

namespace orrery {

/// The offset in ns to add to a rank's clock to get rank 0's, and its max error.
struct ClockOffset {
    int64_t ns = 0;
    int64_t error_ns = 0;
};

/// Identifies the clock that steady_clock reads: that of the running kernel, by its boot id. Processes with the same
/// text need no offset. "": unknown.
std::string clock_name();

/// Returns this rank's offset. `clocks`: every rank's clock_name(), in rank order. For each clock other than rank 0's,
/// its first rank asks rank 0 for the time, a few times through the store, and uses the fastest answer: the error is
/// half of that round trip (Cristian, Probabilistic clock synchronization, 1989). Collective; `name` prefixes the keys
/// and must be new in each call. `now`: this rank's clock, in ns. Throws as Rendezvous::get does.
ClockOffset clock_offset(Rendezvous& rendezvous, const std::string& name, int64_t rank,
                         const std::vector<std::string>& clocks, std::chrono::milliseconds timeout,
                         const std::function<int64_t()>& now);

}  // namespace orrery
