#pragma once
#include <string>
#include <thread>

namespace orrery {

/// Takes the stop signals that hold_stop_signals() holds, on a thread of its own and by signalfd. A run that has
/// something to save is asked to (run/control/stop_request.h) and ends by itself; else the process ends at once, with
/// 75, or 130 for SIGINT. A second SIGINT ends it with 130 in any case, within
/// a second also where its folder's disk hangs. SIGPIPE is ignored from here on: what
/// nobody reads is dropped.
class SignalTaker {
public:
    /// `who`: "[rank 1] ", before what is said.
    explicit SignalTaker(std::string who = "");
    ~SignalTaker();
    SignalTaker(const SignalTaker&) = delete;
    /// From here on signals wait for the caller to take them.
    void leave_them();

private:
    void run();
    /// `meant`: the signal that the job got.
    void take(int came, int meant);
    [[noreturn]] void end(int signal);

    const std::string who_;
    int signals_ = -1, stop_ = -1;
    bool interrupted_ = false;
    std::thread thread_;
};

/// What a process ends with that is stopped by a signal: 130 after SIGINT, else 75, "to be queued again".
int stopped_code(int signal);

}  // namespace orrery
