#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/error.h"

namespace orrery {

/// A part of a step: the forward (F), backward-input (B) or backward-weight (W) ops of one stage and one micro-batch.
struct Fragment {
    enum class Kind : uint8_t { forward, backward, weight };
    Kind kind = Kind::forward;
    int64_t micro = 0;
    int chunk = 0;  ///< index among the stages of the rank, for interleaved schedules
    bool operator==(const Fragment&) const = default;
};

/// The order of fragments on one pipeline rank. Text: "F0 F1 B0 W0 ..."; chunk c > 0 is written "F0.c". A schedule
/// without any W runs each weight gradient right after its B.
struct ORRERY_API RankSchedule {
    std::vector<Fragment> order;

    std::string text() const;
    /// Parses the text form. Throws Error naming the word that is not a fragment.
    static RankSchedule parse(std::string_view text);
};

/// A pipeline schedule: one order of fragments per pipeline rank.
struct Schedule {
    std::string name;
    std::vector<RankSchedule> ranks;
    /// The stage of chunk c of rank r: stages[r][c]. Empty: stage c * ranks + r, as in interleaved schedules.
    std::vector<std::vector<int>> stages;
    Origin origin = {};  ///< the Lua function that made the schedule

    ORRERY_API int stage_of(int rank, int chunk) const;
    /// Pipeline stages of one rank, by chunk; a rank has as many chunks as its order names.
    ORRERY_API std::vector<int> stages_of(int rank) const;
};

/// Returns the forward fragments of the first `microbatches` micro-batches: the schedule without a backward pass.
ORRERY_API Schedule forward_only(const Schedule& schedule, int64_t microbatches);

/// Runs each micro-batch forward and then backward, for a program without pipeline stages: F0 B0 F1 B1 ...
ORRERY_API Schedule sequential_schedule(int64_t microbatches);

}  // namespace orrery
