#pragma once
#include <cstdint>

#include "run/checkpoint/retain/retention.h"
#include "run/script_interface.h"

namespace orrery {

/// Which steps of a training are saved, and which of those that are due while a save is under way are left out. Knows
/// only what every rank knows, so that all decide the same; what it is told must be the same on every rank.
class SaveSchedule {
public:
    SaveSchedule(const TrainOptions& options, const RetentionPolicy& keep)
        : every_(options.checkpoint_every), automatic_(options.checkpoint_mtbf_s > 0), keep_(keep) {}

    /// checkpoint.every = "auto": the interval follows from what a save costs.
    bool automatic() const { return automatic_; }
    /// Of "auto": the next save is of this step, or of the first after it that can be saved.
    void set_next(int64_t step) { next_ = step; }
    /// Of "auto": whether a save has ended since, so that set_next is to be called.
    bool asks_next() const { return automatic_ && next_ == 0; }
    /// Whether the step is to be saved. `saving`: a save is under way; `timed`: what a step takes is known.
    bool due(int64_t step, bool saving, bool timed) const;
    /// Whether a due step waits until the save under way has ended; else it is left out. At most every second due
    /// step is left out, and none that retention needs.
    bool waits(const DueStep& due) const { return left_out_ > 0 || needs(keep_, due); }
    void left_out() { ++left_out_; }
    /// A save of the step has begun. `timed`: what it costs says when the next one comes; else that stays as it was.
    void began(bool timed);

private:
    const int64_t every_;
    const bool automatic_;
    const RetentionPolicy keep_;
    int64_t next_ = 0;      ///< of "auto"; 0: not known yet
    int64_t left_out_ = 0;  ///< since the last began
};

}  // namespace orrery
