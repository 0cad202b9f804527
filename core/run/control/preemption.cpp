#include "run/control/preemption.h"

#include <fmt/format.h>

#include "run/control/stop_request.h"

namespace orrery {

Status StopVote::mine() const { return stop_signal() != 0 ? Status::stop : Status::go_on; }

bool StopVote::ends(const HostResults& results) const {
    if (ranks_ == 1) return stop_signal() != 0;
    float sum = 0;
    results.read(status_name, &sum);
    return status_of(sum) == Status::stop;
}

std::string StopVote::reason() const {
    const int signal = stop_signal();
    return signal != 0 ? fmt::format("stopped by signal {}", signal) : "stopped because another rank was signalled";
}

}  // namespace orrery
