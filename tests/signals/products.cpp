// Signals at a high rate beside oneDNN's products, some of which run on a stack in the heap: a handler's frame would be
// written over its neighbours. The set-up is that of `orrery run`, and comes before the first thread.
#include <dirent.h>
#include <dnnl.h>

#include <csignal>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <string>
#include <vector>

#include "base/signals.h"
#include "cli/signals.h"
#include "run/control/stop_request.h"

namespace {

int wrong = 0;

void expect(bool right, const char* what) {
    if (right) return;
    std::fprintf(stderr, "not so: %s\n", what);
    ++wrong;
}

/// The signals of one line of /proc/self/task/TID/status, of each thread.
std::vector<uint64_t> masks(const std::string& line) {
    std::vector<uint64_t> all;
    DIR* threads = ::opendir("/proc/self/task");
    while (const dirent* thread = ::readdir(threads)) {
        if (thread->d_name[0] == '.') continue;
        std::ifstream in(std::string("/proc/self/task/") + thread->d_name + "/status");
        for (std::string text; std::getline(in, text);)
            if (text.starts_with(line)) all.push_back(std::stoull(text.substr(line.size()), nullptr, 16));
    }
    ::closedir(threads);
    return all;
}

uint64_t bit(int signal) { return uint64_t{1} << (signal - 1); }

constexpr int stops[] = {SIGTERM, SIGUSR1, SIGINT, SIGHUP};

/// What the system has is left alone, and what cannot wait too.
constexpr int untouched[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTSTP, SIGCONT, SIGCHLD, SIGWINCH, SIGQUIT};

/// Products for one or two seconds, in memory that the heap's own checks watch over; a signal every 0.2 ms.
void multiply() {
    timer_t timer{};
    sigevent event{};
    event.sigev_notify = SIGEV_SIGNAL;
    event.sigev_signo = SIGUSR1;
    expect(::timer_create(CLOCK_MONOTONIC, &event, &timer) == 0, "there is a timer");
    const itimerspec rate{{0, 200'000}, {0, 200'000}};
    ::timer_settime(timer, 0, &rate, nullptr);
    timespec begun{}, now{};
    ::clock_gettime(CLOCK_MONOTONIC, &begun);
    for (int round = 0; now.tv_sec < begun.tv_sec + 2; ++round) {
        for (const int64_t n : {8, 64, 100, 128, 256}) {
            const std::vector<float> a(static_cast<size_t>(n * n), 1), b = a;
            std::vector<float> c(a.size());
            dnnl_sgemm('N', 'N', n, n, n, 1, a.data(), n, b.data(), n, 0, c.data(), n);
            for (const float sum : c)
                if (sum != static_cast<float>(n)) return expect(false, "every sum is right");
        }
        ::clock_gettime(CLOCK_MONOTONIC, &now);
    }
    ::timer_delete(timer);
}

}  // namespace

int main() {
    expect(masks("SigBlk:").size() == 1, "no library made a thread before main");
    orrery::hold_stop_signals();
    const orrery::SignalTaker taker;
    orrery::StopAnswer run({});
    run.keep();
    multiply();
    expect(orrery::stop_signal() == SIGUSR1, "the signals were taken");
    for (const uint64_t blocked : masks("SigBlk:")) {
        for (const int signal : stops) expect(blocked & bit(signal), "every thread blocks the stop signals");
        for (const int signal : untouched) expect(!(blocked & bit(signal)), "the others are not blocked");
    }
    for (const uint64_t caught : masks("SigCgt:"))
        for (const int signal : stops) expect(!(caught & bit(signal)), "no stop signal has a handler");
    std::printf("%s\n", wrong == 0 ? "1 passed, 0 failed" : "1 failed");
    return wrong == 0 ? 0 : 1;
}
