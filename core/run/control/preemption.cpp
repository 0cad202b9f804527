#include "run/control/preemption.h"

#include <fmt/format.h>

#include "run/control/stop_request.h"

namespace orrery {
namespace {

constexpr int64_t wish = int64_t{1} << 40;  // above any step: wishes and the step share one number of the store

}  // namespace

StopVote::StopVote(Session& session) : session_(session), key_(fmt::format("stop/{}", session.job().session)) {}

bool StopVote::after(int64_t step) {
    Rendezvous* store = session_.rendezvous();
    if (!store) return stop_signal() != 0;
    const bool ask = stop_signal() != 0 && !asked_;
    asked_ = asked_ || ask;
    int64_t sum = store->add(key_, ask ? wish : 0);
    if (session_.job().rank == 0 && sum >= wish && !named_) {
        named_ = true;
        sum = store->add(key_, step + 2);
    }
    return sum % wish == step;
}

std::string StopVote::reason() const {
    const int signal = stop_signal();
    return signal != 0 ? fmt::format("stopped by signal {}", signal) : "stopped because another rank was signalled";
}

}  // namespace orrery
