#pragma once
#include <csignal>

namespace orrery {

/// The signals that ask a process to stop: SIGTERM, SIGUSR1, SIGINT and SIGHUP, except those that this process ignores,
/// such as SIGHUP under nohup.
sigset_t stop_signals();

/// Blocks the stop signals in this thread and in threads that it creates later; returns the previous mask. One thread
/// waits for the blocked signals. Handlers are not used because they run on the current stack: some oneDNN matmuls use
/// a stack in the heap, and the kernel would write the signal frame over adjacent memory.
sigset_t hold_stop_signals();

/// Sets the thread that waits for the blocked signals; 0: there is none.
void taken_by(pthread_t thread);

/// Saves this process's actions for stop signals; the destructor restores them. Used around code that opens libraries:
/// UCX, for example, installs a SIGHUP handler when loaded, even under nohup.
class SignalsKept {
public:
    SignalsKept();
    ~SignalsKept();
    SignalsKept(const SignalsKept&) = delete;

private:
    struct sigaction before_[4];
};

/// While an object exists, programs that this thread starts have the stop signals unblocked with the default action. A
/// stop signal that arrives at this thread is forwarded to the thread that waits for such signals. Do not use it on a
/// stack in the heap.
class SignalsForChildren {
public:
    SignalsForChildren();
    ~SignalsForChildren();
    SignalsForChildren(const SignalsForChildren&) = delete;

private:
    sigset_t opened_, before_;
    bool counted_ = false;
};

/// While an object exists, stop signals are queued for its owner, and SIGPIPE is ignored. For commands that must end
/// child programs or remove files before they end. The destructor delivers signals that the owner has not taken.
class HeldSignals {
public:
    HeldSignals();
    ~HeldSignals();
    HeldSignals(const HeldSignals&) = delete;
    /// Returns a file descriptor for poll, which becomes readable when a stop signal arrives.
    int file() const { return file_; }
    /// Takes and returns the next stop signal that has arrived; 0: none.
    int take();

private:
    sigset_t before_;
    struct sigaction pipe_, size_;
    int file_ = -1;
};

}  // namespace orrery
