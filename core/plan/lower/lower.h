#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/plan.h"
#include "plan/network.h"
#include "plan/repeat.h"

namespace orrery {

/// Assigns places in the persistent arena by name. There is one object per session, shared by its programs. All ranks
/// that lower the same programs in the same order get the same offsets.
class Persistent {
public:
    /// Offset in bytes (a multiple of 64) for a name. `part`: pipeline rank. Throws Error if its size was different.
    int64_t place(std::string_view name, int64_t bytes, int part = 0);
    /// Offset of a block that programs use in turn ("inputs", "results"): the first of that name that is large enough.
    int64_t place_block(std::string_view name, int64_t bytes, int part = 0);
    /// Prepares parts 0 to `parts` - 1. Different threads may then place values in different parts.
    void open(int parts);
    /// Size of the arena of one pipeline rank, at least 64.
    int64_t bytes(int part = 0) const;

private:
    struct Place {
        int64_t offset = 0;
        int64_t bytes = 0;
    };
    struct Part {
        std::map<std::string, Place, std::less<>> places;
        int64_t bytes = 0;
    };
    std::map<int, Part> parts_;
};

struct LowerOptions {
    Network contracts;  ///< by axis name; a missing axis has the default contract
    /// nullptr: sequential_schedule, for programs with one stage. Programs without a backward pass run only its F.
    const Schedule* schedule = nullptr;
    int threads_per_rank = 1;
    /// Scratch bytes that the device needs for one launch of a kernel; placed in the scratch arena. Empty: unknown, and
    /// the executor allocates them separately.
    std::function<int64_t(const KernelSpec&)> workspace;
    int64_t written_micros = orrery::written_micros;
    bool fingerprinted = true;  ///< false: the plan will not run
    /// Upper bound for the prefetch depth that strategies request; used to find the depth that fits in memory.
    PrefetchDepth prefetch_at_most{INT64_MAX, INT64_MAX};
};

/// Lowers a distributed and fused program: orders fragments, joins all-reduces of gradients in buckets, gives each
/// value a place, and inserts waits for dependencies between queues. Time and memory are linear in ops times written
/// micro-batches, and independent of the number of ranks. Throws Error with op and script line.
Plan lower(Program fused, const Mesh& mesh, Persistent& persistent, const LowerOptions& options = {});

/// The bytes that a rank allocates.
struct ArenaBytes {
    int64_t persistent = 64;
    int64_t scratch = 64;
    int64_t both() const { return persistent + scratch; }
};

/// The arena sizes of each class: the places of all programs, and the largest scratch arena of the plans. There must be
/// at least one plan, and all must have the same mesh.
std::vector<ArenaBytes> arena_bytes(const Persistent& persistent, const std::vector<const Plan*>& plans);

}  // namespace orrery
