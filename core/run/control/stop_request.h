#pragma once
#include <functional>

namespace orrery {

/// The first signal that asked this process to stop; 0: none.
int stop_signal();
/// Seconds since the first signal that asked this process to stop; 0: there was none.
double seconds_since_asked();

/// Called by the thread that takes the process's signals. True: a run has state to save and will end by itself after
/// its StopVote. False: there is nothing to save and the caller ends the process; from then on no session can begin,
/// end, or start keeping state.
bool ask_to_stop(int signal);
/// Called after ask_to_stop() returned false: makes every session report the stop to its other ranks. Returns once that
/// is done or has failed.
void tell_stopped();

/// Called by a process that is about to end and reports why: from then on ask_to_stop() is true. Within a session this
/// holds until 2 s after the end of the last session, since a script may catch the error and continue; without a
/// session it holds for good.
void ends_by_itself();

/// What a rank sends if it ends on a signal with nothing to save, with Cause::stopped; the others end in the same way.
constexpr const char* stopped_early = "stopped by a signal with nothing to save";

/// The message of a rank that ends because another rank was stopped.
constexpr const char* other_stopped = "stopped because another rank was, with nothing to save: start again to go on";

/// A session's answer to a signal: until `keep` is called, nothing is lost if the process ends at once.
class StopAnswer {
public:
    /// `tell` notifies the other ranks; it is called at most once, by another thread.
    explicit StopAnswer(std::function<void()> tell);
    ~StopAnswer();
    StopAnswer(const StopAnswer&) = delete;
    /// Called before the first step: from then on a signal waits for the vote after the step.
    void keep();

private:
    friend void tell_stopped();
    std::function<void()> tell_;
    bool keeps_ = false;
};

}  // namespace orrery
