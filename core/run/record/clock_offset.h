#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "orrery/communicator.h"

namespace orrery {

/// What is added to a rank's clock to have that of rank 0, in ns, and how far it may be from that.
struct ClockOffset {
    int64_t ns = 0;
    int64_t error_ns = 0;
};

/// The clock that steady_clock reads here: that of the kernel which runs this process, known by its boot. Processes
/// with the same text need no offset. "": it is not known.
std::string clock_name();

/// This rank's offset. `clocks`: every rank's clock_name(), in rank order. Of each clock other than rank 0's the first
/// rank asks rank 0 for its time, a few times through the store, and believes the shortest answer: its error is half of
/// that round trip (Cristian, Probabilistic clock synchronization, 1989). Collective; `name` is for keys, and new each
/// time. `now`: this rank's clock, in ns. Throws as Rendezvous::get does.
ClockOffset clock_offset(Rendezvous& rendezvous, const std::string& name, int64_t rank,
                         const std::vector<std::string>& clocks, std::chrono::milliseconds timeout,
                         const std::function<int64_t()>& now);

}  // namespace orrery
