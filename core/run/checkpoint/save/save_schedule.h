#pragma once
#include <cstdint>

#include "run/checkpoint/retain/retention.h"
#include "run/script_interface.h"

namespace orrery {

/// Decides which steps of a training are saved, and which due steps are skipped because a save is under way. All ranks
/// decide the same, as long as every call has the same arguments on every rank.
class SaveSchedule {
public:
    SaveSchedule(const TrainOptions& options, const RetentionPolicy& keep)
        : every_(options.checkpoint_every), automatic_(options.checkpoint_mtbf_s > 0), keep_(keep) {}

    /// Whether checkpoint.every is "auto": the interval then follows from the measured cost of saves.
    bool automatic() const { return automatic_; }
    /// For "auto": sets the step of the next save. If it cannot be saved, the first later step that can be saved is.
    void set_next(int64_t step) { next_ = step; }
    /// For "auto": whether the next step to save is unknown, so that set_next must be called once a save has ended.
    bool asks_next() const { return automatic_ && next_ == 0; }
    /// Whether the step must be saved. `saving`: a save is under way; `timed`: the time of a step is known.
    bool due(int64_t step, bool saving, bool timed) const;
    /// Whether the training waits at a due step for the save under way; otherwise it skips the due step. It waits if
    /// the previous due step was skipped, or if a retention rule may need the step.
    bool waits(const DueStep& due) const { return left_out_ > 0 || needs(keep_, due); }
    void left_out() { ++left_out_; }
    /// Records that a save has begun. `timed`: its cost will determine the next step to save; otherwise next_ stays.
    void began(bool timed);

private:
    const int64_t every_;
    const bool automatic_;
    const RetentionPolicy keep_;
    int64_t next_ = 0;      ///< for "auto": the next step to save; 0: not known yet
    int64_t left_out_ = 0;  ///< due steps skipped since the last save began
};

}  // namespace orrery
