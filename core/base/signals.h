#pragma once
#include <csignal>

namespace orrery {

/// SIGTERM, SIGUSR1, SIGINT and SIGHUP, which ask a process to end, but for those that it ignores, as SIGHUP under
/// nohup.
sigset_t stop_signals();

/// Blocks them in this thread and in those that it makes from now on; returns what it blocked before. A handler would
/// run on whatever stack a library is on, and some products of oneDNN are on one in the heap, over whose neighbours the
/// kernel writes the signal's frame. Held signals come to no handler: one thread asks for them.
sigset_t hold_stop_signals();

/// The thread that asks for held signals from now on; 0: none does.
void taken_by(pthread_t thread);

/// What this process does on each stop signal, put back at the end: for code that opens libraries. UCX, for one,
/// installs a handler for SIGHUP when it is loaded, also where nohup has it ignored.
class SignalsKept {
public:
    SignalsKept();
    ~SignalsKept();
    SignalsKept(const SignalsKept&) = delete;

private:
    struct sigaction before_[4];
};

/// While one lives, a program that this thread starts has the stop signals as the system has them, not blocked. One
/// that comes to this thread meanwhile is handed to the thread that takes them. For code on a plain stack.
class SignalsForChildren {
public:
    SignalsForChildren();
    ~SignalsForChildren();
    SignalsForChildren(const SignalsForChildren&) = delete;

private:
    sigset_t opened_, before_;
    bool counted_ = false;
};

/// While one lives, stop signals wait to be taken by its owner, and SIGPIPE is ignored: for a command that has started
/// programs or made files which must go before it ends. Those that nobody has taken come at its end.
class HeldSignals {
public:
    HeldSignals();
    ~HeldSignals();
    HeldSignals(const HeldSignals&) = delete;
    /// Readable when one has come; for poll.
    int file() const { return file_; }
    /// The next one, 0: none has come.
    int take();

private:
    sigset_t before_;
    struct sigaction pipe_, size_;
    int file_ = -1;
};

}  // namespace orrery
