#include "cli/signals.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <semaphore>
#include <utility>

#include "base/signals.h"
#include "cli/output/output.h"
#include "cli/run_record/run_record.h"
#include "orrery/error.h"
#include "run/control/stop_request.h"

namespace orrery {

namespace {

/// Ends the process after `say`, but within a second: a reader may have stopped reading, and a disk may hang.
template <class Say>
[[noreturn]] void leave(int signal, Say say) {
    const auto said = std::make_shared<std::binary_semaphore>(0);
    std::thread([said, signal, say = std::move(say)] {
        say();
        finish_output(stopped_code(signal));
        said->release();
    }).detach();
    (void)said->try_acquire_for(std::chrono::seconds(1));
    ::_exit(stopped_code(signal));
}

}  // namespace

int stopped_code(int signal) { return signal == SIGINT ? 128 + SIGINT : 75; }

SignalTaker::SignalTaker(std::string who) : who_(std::move(who)) {
    ::signal(SIGPIPE, SIG_IGN);
    ::signal(SIGXFSZ, SIG_IGN);  // a write above the file size limit fails instead, with an error naming the file
    const sigset_t held = stop_signals();
    signals_ = ::signalfd(-1, &held, SFD_CLOEXEC | SFD_NONBLOCK);
    stop_ = ::eventfd(0, EFD_CLOEXEC);
    if (signals_ < 0 || stop_ < 0)
        throw Error(fmt::format("cannot take signals: {}", std::strerror(errno)), Fault::failed);
    thread_ = std::thread([this] { run(); });
    taken_by(thread_.native_handle());
}

SignalTaker::~SignalTaker() {
    leave_them();
    ::close(signals_);
    ::close(stop_);
}

void SignalTaker::leave_them() {
    if (!thread_.joinable()) return;
    const uint64_t one = 1;
    [[maybe_unused]] const auto written = ::write(stop_, &one, sizeof one);
    thread_.join();
    taken_by(0);
}

void SignalTaker::run() {
    for (;;) {
        pollfd both[2] = {{signals_, POLLIN, 0}, {stop_, POLLIN, 0}};
        ::poll(both, 2, -1);
        signalfd_siginfo info{};
        while (::read(signals_, &info, sizeof info) == sizeof info) {
            // Our launcher forwards SIGINT as SIGTERM, since a terminal may have sent SIGINT here, too.
            const bool interrupted = info.ssi_signo == SIGTERM && info.ssi_code == SI_QUEUE && info.ssi_int == SIGINT;
            take(static_cast<int>(info.ssi_signo), interrupted ? SIGINT : static_cast<int>(info.ssi_signo));
        }
        if (both[1].revents) return;
    }
}

void SignalTaker::take(int came, int meant) {
    if (came == SIGINT && interrupted_)
        leave(came, [] { end_run_record("stopped by a second signal 2", stopped_code(SIGINT)); });
    interrupted_ = interrupted_ || came == SIGINT;
    if (!ask_to_stop(meant)) end(meant);
}

void SignalTaker::end(int signal) {
    std::string line =
        fmt::format("orrery: {}stopped by signal {} with nothing to save: start again to resume\n", who_, signal);
    leave(signal, [signal, line = std::move(line)] {
        const auto say = [&] {
            [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line.data(), line.size());
        };
        pollfd reader{STDERR_FILENO, POLLOUT, 0};
        const bool reads = ::poll(&reader, 1, 0) == 1;  // informing other ranks may use up the second
        if (reads) say();
        tell_stopped();
        end_run_record(fmt::format("stopped by signal {} with nothing to save", signal), stopped_code(signal));
        if (::ftrylockfile(stdout) == 0) ::fflush_unlocked(stdout);
        if (!reads) say();
    });
}

}  // namespace orrery
