#pragma once
#include <string>

#include "compile/passes/status_word.h"
#include "run/host_side.h"

namespace orrery {

/// Agrees on what follows a step: each rank says with every step how it stood when that began, asked to stop, its save
/// under way or failed, and all find the same sum in its results. Asks nobody else.
class StopVote {
public:
    explicit StopVote(int64_t ranks) : ranks_(ranks) {}

    /// What this rank says in the step that begins; `save`: how its save stands, one of go_on, saving and save_failed;
    /// `time`: whether there is time for a checkpoint, where it was asked to stop.
    Status mine(Status save, bool time) const;
    /// What all say, after the step that has left these results; a rank that is alone looks for itself.
    Status all(const HostResults& results, Status save, bool time) const;
    /// "stopped by signal 15", for the message.
    std::string reason() const;

private:
    const int64_t ranks_;
};

}  // namespace orrery
