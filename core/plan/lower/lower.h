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

/// Assigns offsets in the persistent arena to params, states and other values by name. There is one object per session,
/// shared by its programs. All ranks that lower the same programs in the same order get the same offsets.
class Persistent {
public:
    /// Offset of a named value in bytes, a multiple of 64. `part`: pipeline rank. Throws Error if its size changes.
    int64_t place(std::string_view name, int64_t bytes, int part = 0);
    /// Offset in bytes of a block that programs use in turn ("inputs"): one of this name that is large enough, or new.
    int64_t place_block(std::string_view name, int64_t bytes, int part = 0);
    /// Prepares pipeline ranks 0 to `parts` - 1. Different threads may then place values on different pipeline ranks.
    void open(int parts);
    /// The size of the persistent arena of pipeline rank `part`, at least 64 bytes.
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
    Network contracts;  ///< transport contracts by axis name, else the default contract
    /// Pipeline schedule; nullptr if the program has one stage. Without a backward pass, only forward fragments run.
    const Schedule* schedule = nullptr;
    int threads_per_rank = 1;
    /// Returns the bytes of scratch memory that a launch of the kernel needs, to be placed in the scratch arena. Empty:
    /// not known; the executor then allocates workspaces separately.
    std::function<int64_t(const KernelSpec&)> workspace;
    int64_t written_micros = orrery::written_micros;
    bool fingerprinted = true;  ///< compute the fingerprint; false for plans that do not run
    /// Upper bound for prefetch depths of strategies, lowered until the plan fits in memory.
    PrefetchDepth prefetch_at_most{INT64_MAX, INT64_MAX};
};

/// Lowers a distributed and fused program: orders fragments, joins all-reduces of gradients in buckets, gives each
/// value a place, and inserts waits for dependencies between queues. Time and memory are linear in ops times written
/// micro-batches, and independent of the number of ranks. Throws Error with op and script line.
Plan lower(Program fused, const Mesh& mesh, Persistent& persistent, const LowerOptions& options = {});

/// The sizes in bytes of the arenas that a rank allocates.
struct ArenaBytes {
    int64_t persistent = 64;
    int64_t scratch = 64;
    int64_t both() const { return persistent + scratch; }
};

/// The arena sizes of each class of ranks: the persistent arena has the places of all programs, plans share
/// the scratch arena (scratch_places in plan/opening.h). All plans (at least one) must have the same mesh.
std::vector<ArenaBytes> arena_bytes(const Persistent& persistent, const std::vector<const Plan*>& plans);

}  // namespace orrery
