#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/error.h"

namespace orrery {

/// A piece of a step: the forward (F), backward-input (B) or backward-weight (W) ops of one stage and one micro-batch.
struct Fragment {
    enum class Kind : uint8_t { forward, backward, weight };
    Kind kind = Kind::forward;
    int64_t micro = 0;
    int chunk = 0;  ///< which of the rank's stages, for interleaved schedules
    bool operator==(const Fragment&) const = default;
};

/// Fragments in order, for one rank of the pipeline. Text: "F0 F1 B0 W0 ..."; chunk c > 0 is written "F0.c".
/// A schedule without any W runs each weight gradient right after its B.
struct ORRERY_API RankSchedule {
    std::vector<Fragment> order;

    std::string text() const;
    /// Throws Error naming the piece that is no fragment.
    static RankSchedule parse(std::string_view text);
};

/// One order per pipeline rank.
struct Schedule {
    std::string name;
    std::vector<RankSchedule> ranks;
    /// The stage that is chunk c of rank r: stages[r][c]. Empty: stage c * ranks + r, as interleaved schedules do.
    std::vector<std::vector<int>> stages;
    Origin origin = {};  ///< the function that made it

    ORRERY_API int stage_of(int rank, int chunk) const;
    /// The stages of one rank, by chunk; as many chunks as its order names.
    ORRERY_API std::vector<int> stages_of(int rank) const;
};

/// The F of a schedule's first micro-batches: what a program without a backward pass runs.
ORRERY_API Schedule forward_only(const Schedule& schedule, int64_t microbatches);

/// Every micro-batch forward and then backward at once, for a program without pipeline stages: F0 B0 F1 B1 ...
ORRERY_API Schedule sequential_schedule(int64_t microbatches);

}  // namespace orrery
