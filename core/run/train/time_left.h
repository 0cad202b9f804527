#pragma once

namespace orrery {

/// Whether what a run that is asked to stop has to do fits into the time that its machine has left (run.grace_s).
class TimeLeft {
public:
    /// `grace_s`: from the request on; 0: nobody has said, and there is time for all.
    explicit TimeLeft(double grace_s) : grace_s_(grace_s) {}

    /// Of one step, with what lies between it and the next but its save; the longest of the last ones counts.
    void step_took(double seconds);
    void save_took(double seconds) { save_s_ = seconds; }
    /// `since_s`: seconds since the request. A step, which is on its way to all ranks as their word to stop, and a save
    /// take as long as the last ones did, and a quarter more; a save that nobody has seen yet is tried. `saving_s`: of
    /// one that is under way, seconds since it began: what is left of it comes first; -1: none is.
    bool fits(double since_s, double saving_s = -1) const;
    double needed_s(double saving_s = -1) const;
    double grace_s() const { return grace_s_; }

private:
    const double grace_s_;
    double step_s_ = 0, save_s_ = 0;
};

}  // namespace orrery
