#pragma once
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "run/checkpoint/format/messages.h"

namespace orrery {

struct Restored {
    int64_t step = 0;
    std::string host;                      ///< JSON object that was given to Checkpoints::save
    std::vector<std::string> passed_over;  ///< messages about newer steps that are damaged or suspect
    std::vector<int64_t> newer = {};       ///< with --from-step: newer steps that are not marked as suspect
    bool loss_scale = false;               ///< whether the checkpoint has the states of a loss scale
    int64_t islands = 0;                   ///< number of islands of the checkpoint, if the program has another; else 0
};

/// Fills the params and states of all ranks from a checkpoint of any mesh and layout. Collective.
class Restore {
public:
    /// `notes` receives messages about store entries that are not checkpoints and about what is dropped, the same on
    /// every rank. `drop`: as in CheckpointOptions.
    Restore(CheckpointStore& store, const Mesh& mesh, int64_t rank, AxisId stage_axis, Rounds& rounds,
            std::vector<std::string>& notes, std::vector<std::string> drop)
        : store_(store),
          mesh_(mesh),
          rank_(rank),
          stage_axis_(stage_axis),
          rounds_(rounds),
          notes_(notes),
          drop_(std::move(drop)) {}

    /// Reads step `from`, or for -1 the newest usable step, into `state`; see Checkpoints::restore.
    std::optional<Restored> into(std::span<const StateValue> state, bool some, int64_t from);
    /// Whether the step was skipped: it is damaged, suspect, or newer than --from-step.
    bool passed_over(int64_t step) const { return passed_over_.count(step) > 0; }

private:
    std::string look();
    Restored chosen(int64_t from, std::span<const StateValue> state, const Json& found, bool some);
    std::string fill(int64_t step, std::span<const StateValue> state, bool some, Restored& restored);
    std::string fill_from(int64_t step, std::span<const StateValue> state, bool some, Restored& restored);
    std::string judge_fills(int64_t step, const std::vector<std::string>& fills, bool some);

    CheckpointStore& store_;
    const Mesh& mesh_;
    const int64_t rank_;
    const AxisId stage_axis_;
    Rounds& rounds_;
    std::vector<std::string>& notes_;
    const std::vector<std::string> drop_;
    std::set<int64_t> passed_over_;
};

}  // namespace orrery
