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
    std::string host;                      ///< the JSON object given to save
    std::vector<std::string> passed_over;  ///< newer ones, with why: damaged (file, tensor, offset) or suspect
    std::vector<int64_t> newer = {};       ///< of a step that was asked for: those behind it that are not marked
};

/// Fills the states of all ranks from a checkpoint, whatever its mesh and layout. Collective.
class Restore {
public:
    /// `notes`: where it adds what lies among the steps and is no checkpoint, the same on every rank.
    Restore(CheckpointStore& store, const Mesh& mesh, int64_t rank, AxisId stage_axis, Rounds& rounds,
            std::vector<std::string>& notes)
        : store_(store), mesh_(mesh), rank_(rank), stage_axis_(stage_axis), rounds_(rounds), notes_(notes) {}

    /// As Checkpoints::restore says.
    std::optional<Restored> into(std::span<const StateValue> state, bool some, int64_t from);
    /// Whether the step is not what this job went on from.
    bool passed_over(int64_t step) const { return passed_over_.count(step) > 0; }

private:
    std::string look();
    Restored chosen(int64_t from, std::span<const StateValue> state, const Json& found, bool some);
    std::string fill(int64_t step, std::span<const StateValue> state, bool some, std::string& host);
    std::string fill_from(int64_t step, std::span<const StateValue> state, bool some, std::string& host);
    std::string judge_fills(int64_t step, const std::vector<std::string>& fills, bool some);

    CheckpointStore& store_;
    const Mesh& mesh_;
    const int64_t rank_;
    const AxisId stage_axis_;
    Rounds& rounds_;
    std::vector<std::string>& notes_;
    std::set<int64_t> passed_over_;
};

}  // namespace orrery
