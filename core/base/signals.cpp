#include "base/signals.h"

#include <fmt/format.h>
#include <pthread.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <mutex>

#include "orrery/error.h"

namespace orrery {
namespace {

constexpr int all_stop[4] = {SIGTERM, SIGUSR1, SIGINT, SIGHUP};

static_assert(std::atomic<pthread_t>::is_always_lock_free);
std::atomic<pthread_t> taker{0};

std::mutex order;
int opening = 0;  // number of SignalsForChildren objects; more than one when ranks are threads

void hand_over(int signal) { ::pthread_kill(taker.load(), signal); }

}  // namespace

sigset_t stop_signals() {
    sigset_t set;
    ::sigemptyset(&set);
    for (const int signal : all_stop) {
        struct sigaction now {};
        ::sigaction(signal, nullptr, &now);
        // Leaves out signals that are ignored: while blocked, they would be queued although they are ignored.
        if (now.sa_handler != SIG_IGN) ::sigaddset(&set, signal);
    }
    return set;
}

sigset_t hold_stop_signals() {
    const sigset_t held = stop_signals();
    sigset_t before;
    ::pthread_sigmask(SIG_BLOCK, &held, &before);
    return before;
}

void taken_by(pthread_t thread) { taker = thread; }

SignalsKept::SignalsKept() {
    for (size_t i = 0; i < std::size(all_stop); ++i) ::sigaction(all_stop[i], nullptr, &before_[i]);
}

SignalsKept::~SignalsKept() {
    for (size_t i = 0; i < std::size(all_stop); ++i) ::sigaction(all_stop[i], &before_[i], nullptr);
}

SignalsForChildren::SignalsForChildren() {
    ::sigemptyset(&opened_);
    ::pthread_sigmask(SIG_SETMASK, nullptr, &before_);
    if (taker.load() == 0) return;
    counted_ = true;
    struct sigaction action {};
    action.sa_handler = hand_over;  // programs do not inherit the handler: exec restores the default action
    action.sa_flags = SA_RESTART;
    const std::lock_guard lock(order);
    const sigset_t held = stop_signals();
    for (const int signal : all_stop) {
        if (::sigismember(&held, signal) != 1 || ::sigismember(&before_, signal) != 1) continue;
        ::sigaddset(&opened_, signal);
        if (opening == 0) ::sigaction(signal, &action, nullptr);
    }
    ++opening;
    ::pthread_sigmask(SIG_UNBLOCK, &opened_, nullptr);
}

SignalsForChildren::~SignalsForChildren() {
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    if (!counted_) return;
    const std::lock_guard lock(order);
    if (--opening > 0) return;
    for (const int signal : all_stop)
        if (::sigismember(&opened_, signal) == 1) ::signal(signal, SIG_DFL);
}

HeldSignals::HeldSignals() {
    const sigset_t held = stop_signals();
    file_ = ::signalfd(-1, &held, SFD_CLOEXEC | SFD_NONBLOCK);
    if (file_ < 0) throw Error(fmt::format("cannot take signals: {}", std::strerror(errno)), Fault::failed);
    before_ = hold_stop_signals();
    struct sigaction ignored {};
    ignored.sa_handler = SIG_IGN;
    ::sigaction(SIGPIPE, &ignored, &pipe_);
    ::sigaction(SIGXFSZ, &ignored, &size_);
}

HeldSignals::~HeldSignals() {
    ::close(file_);
    ::sigaction(SIGPIPE, &pipe_, nullptr);
    ::sigaction(SIGXFSZ, &size_, nullptr);
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

int HeldSignals::take() {
    signalfd_siginfo info{};
    return ::read(file_, &info, sizeof info) == sizeof info ? static_cast<int>(info.ssi_signo) : 0;
}

}  // namespace orrery
