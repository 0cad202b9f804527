#pragma once

namespace orrery {

/// Whether a run that is asked to stop can finish a step and a save before its machine goes away (run.grace_s).
class TimeLeft {
public:
    /// `grace_s`: seconds from the request to stop until the machine goes away; 0: unknown, and fits() is always true.
    explicit TimeLeft(double grace_s) : grace_s_(grace_s) {}

    /// Records the duration of a step and all work until the next, except the save. The longest recent one counts.
    void step_took(double seconds);
    void save_took(double seconds) { save_s_ = seconds; }
    /// Whether the grace period has time for one more step, which carries the request to all ranks, and a save. Each is
    /// expected to take a quarter more than the last time; a save that was never timed counts as 0 s. `since_s`:
    /// seconds since the request. `saving_s`: seconds since the save in progress began, whose remaining time is added;
    /// -1: none is in progress.
    bool fits(double since_s, double saving_s = -1) const;
    double needed_s(double saving_s = -1) const;
    double grace_s() const { return grace_s_; }

private:
    const double grace_s_;
    double step_s_ = 0, save_s_ = 0;
};

}  // namespace orrery
