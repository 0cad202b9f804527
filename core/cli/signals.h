#pragma once
#include <string>
#include <thread>

namespace orrery {

/// Receives the stop signals that hold_stop_signals() blocks, on its own thread with signalfd. A run with state to save
/// is asked to stop (run/control/stop_request.h) and ends by itself; otherwise the process ends at once, with 75, or
/// 130 for SIGINT. A second SIGINT ends it with 130 in any case, within a second even if the folder's disk hangs.
/// SIGPIPE is ignored from then on: output without a reader is dropped.
class SignalTaker {
public:
    /// `who`: prefix of messages, "[rank 1] ".
    explicit SignalTaker(std::string who = "");
    ~SignalTaker();
    SignalTaker(const SignalTaker&) = delete;
    /// Makes later signals stay blocked in this process, for launch() to receive.
    void leave_them();

private:
    void run();
    /// Handles a signal. `came`: as received here; `meant`: as the launcher received it, before forwarding it.
    void take(int came, int meant);
    [[noreturn]] void end(int signal);

    const std::string who_;
    int signals_ = -1, stop_ = -1;
    bool interrupted_ = false;
    std::thread thread_;
};

/// Exit code of a process that is stopped by a signal: 130 after SIGINT, otherwise 75, "to be queued again".
int stopped_code(int signal);

}  // namespace orrery
