#include "run/control/preemption.h"

#include <fmt/format.h>

#include <algorithm>

#include "run/control/stop_request.h"

namespace orrery {

Status StopVote::mine(Status save, bool time) const {
    return std::max(save, stop_signal() == 0 ? Status::go_on : time ? Status::stop : Status::leave);
}

Status StopVote::all(const HostResults& results, Status save, bool time) const {
    if (ranks_ == 1) return mine(save, time);
    float sum = 0;
    results.read(status_name, &sum);
    return status_of(sum);
}

std::string StopVote::reason() const {
    const int signal = stop_signal();
    return signal != 0 ? fmt::format("stopped by signal {}", signal) : "stopped because another rank was signalled";
}

}  // namespace orrery
