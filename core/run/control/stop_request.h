#pragma once
#include <functional>

namespace orrery {

/// The first signal that this process was asked to end by, 0: none.
int stop_signal();
/// Seconds since then, 0: it was not asked.
double seconds_since_asked();

/// Called by the thread that takes the process' signals. True: a run has something to save, and ends by itself as its
/// StopVote says. False: nothing is to be saved, and the caller ends the process; from here on none of its sessions
/// begins, ends, or comes to have something to save.
bool ask_to_stop(int signal);
/// After ask_to_stop() said false: every session tells its other ranks. Returns when they are told, or cannot be.
void tell_stopped();

/// This process is about to end and says why: from here on ask_to_stop() is true. Said in a session, until
/// 2 s after the last one's end, as a script may catch the reason and go on; said without one, for good.
void ends_by_itself();

/// A rank that ends on a signal with nothing to save tells the others this, with Cause::stopped: they end as it did.
constexpr const char* stopped_early = "stopped by a signal with nothing to save";

/// What they say then.
constexpr const char* other_stopped = "stopped because another rank was, with nothing to save: start again to go on";

/// A session's answer to a signal: until `keep` nothing is lost when the process ends at once.
class StopAnswer {
public:
    /// `tell` tells the other ranks; called at most once, by another thread.
    explicit StopAnswer(std::function<void()> tell);
    ~StopAnswer();
    StopAnswer(const StopAnswer&) = delete;
    /// A step is about to begin: from here on a signal waits for the vote after it.
    void keep();

private:
    friend void tell_stopped();
    std::function<void()> tell_;
    bool keeps_ = false;
};

}  // namespace orrery
