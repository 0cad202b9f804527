#include "run/stop.h"

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>

namespace orrery {
namespace {

std::atomic<int> stop_signal{0};  // written by the handler: the one state that a signal can reach

void on_signal(int signal) {
    if (signal == SIGINT && stop_signal.load() == SIGINT) ::_exit(128 + SIGINT);
    stop_signal.store(signal);
}

constexpr int64_t wish = int64_t{1} << 40;  // above any step: wishes and the step share one number of the store

}  // namespace

SignalWatch::SignalWatch() {
    stop_signal.store(0);
    struct sigaction action {};
    action.sa_handler = on_signal;
    for (size_t i = 0; i < std::size(caught); ++i) {
        ::sigaction(caught[i], nullptr, &before_[i]);
        if (before_[i].sa_handler != SIG_IGN) ::sigaction(caught[i], &action, nullptr);
    }
}

SignalWatch::~SignalWatch() {
    for (size_t i = 0; i < std::size(caught); ++i) ::sigaction(caught[i], &before_[i], nullptr);
}

StopVote::StopVote(Session& session) : session_(session), key_(fmt::format("stop/{}", session.job().session)) {}

bool StopVote::after(int64_t step) {
    Rendezvous* store = session_.rendezvous();
    if (!store) return stop_signal.load() != 0;
    const bool ask = stop_signal.load() != 0 && !asked_;
    asked_ = asked_ || ask;
    int64_t sum = store->add(key_, ask ? wish : 0);
    if (session_.job().rank == 0 && sum >= wish && !named_) {
        named_ = true;
        sum = store->add(key_, step + 2);
    }
    return sum % wish == step;
}

std::string StopVote::reason() const {
    const int signal = stop_signal.load();
    return signal != 0 ? fmt::format("stopped by signal {}", signal) : "stopped because another rank was signalled";
}

}  // namespace orrery
