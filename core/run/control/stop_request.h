#pragma once
#include <functional>

namespace orrery {

/// The first signal that asked this process to stop; 0: none.
int stop_signal();
/// Seconds since the first signal that asked this process to stop; 0: there was none.
double seconds_since_asked();

/// Called by the thread that receives the process's signals. Returns true if a run has state to save and will end by
/// itself after its StopVote; false if there is nothing to save and the caller must end the process: then no session
/// can begin, end, or start keeping state.
bool ask_to_stop(int signal);
/// Makes every session report the stop to its other ranks, after ask_to_stop() returned false. Returns once the reports
/// are sent or have failed.
void tell_stopped();

/// Called by a process that is about to end and reports why: from then on ask_to_stop() returns true. Within a session
/// it does so until 2 s after the end of the last session, since a script may catch the error and continue; without a
/// session, for good.
void ends_by_itself();

/// What a rank with nothing to save reports when a signal ends it, with Cause::stopped; other ranks then end, too.
constexpr const char* stopped_early = "stopped by a signal with nothing to save";

constexpr const char* other_stopped = "stopped because another rank was, with nothing to save: start again to go on";

/// How a session answers a stop signal: until keep() is called the process ends at once, since nothing is lost.
class StopAnswer {
public:
    /// `tell` reports the stop to the other ranks; it is called at most once, by another thread.
    explicit StopAnswer(std::function<void()> tell);
    ~StopAnswer();
    StopAnswer(const StopAnswer&) = delete;
    /// Called before the first step: from then on a stop signal waits for the StopVote after the step.
    void keep();

private:
    friend void tell_stopped();
    std::function<void()> tell_;
    bool keeps_ = false;
};

}  // namespace orrery
