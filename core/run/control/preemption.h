#pragma once
#include <string>

#include "compile/passes/status_word.h"
#include "run/host_side.h"

namespace orrery {

/// Makes ranks stop after the same step without extra messages: each puts a status word into the step's inputs (stop
/// requested, save in progress, save failed), and the sum of all words is a result of the step on every rank.
class StopVote {
public:
    explicit StopVote(int64_t ranks) : ranks_(ranks) {}

    /// This rank's status for the step that begins. `save`: state of its checkpoint save: go_on, saving or save_failed;
    /// `time`: whether a rank that was asked to stop has time for a checkpoint.
    Status mine(Status save, bool time) const;
    /// Status of all ranks, from the results of the step that ended; in a job of one rank, the rank's current status.
    Status all(const HostResults& results, Status save, bool time) const;
    /// Why the job stops, "stopped by signal 15", for messages.
    std::string reason() const;

private:
    const int64_t ranks_;
};

}  // namespace orrery
