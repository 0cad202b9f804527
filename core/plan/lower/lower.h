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

/// Places in the persistent arena, by name: one object per session, shared by its programs. Every rank that gives the
/// same programs in the same order gets the same offsets.
class Persistent {
public:
    /// Offset in bytes, a multiple of 64; the same for the same name. `part`: pipeline rank. Throws when the name was
    /// placed with another size.
    int64_t place(std::string_view name, int64_t bytes, int part = 0);
    /// The same for a block of places that programs use in turn, each as much as it needs ("inputs", "results"): the
    /// first of the name that is large enough.
    int64_t place_block(std::string_view name, int64_t bytes, int part = 0);
    /// Places in parts below that number may then be asked for on several threads, each its own part's.
    void open(int parts);
    /// Of the arena of one pipeline rank, 64 at least.
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
    Network contracts;  ///< by axis name; an axis left out has the default contract
    /// nullptr: sequential_schedule, for programs of one stage. Programs without a backward pass run its F alone.
    const Schedule* schedule = nullptr;
    int threads_per_rank = 1;
    /// Bytes of scratch that the device needs for one launch; they are placed in the scratch arena. Empty: not asked,
    /// the executor then allocates them beside the arena.
    std::function<int64_t(const KernelSpec&)> workspace;
    int64_t written_micros = orrery::written_micros;
    bool fingerprinted = true;  ///< false: the plan never runs
    /// No gather runs further ahead, whatever strategies ask for: to find what would fit in memory.
    PrefetchDepth prefetch_at_most{INT64_MAX, INT64_MAX};
};

/// Makes the streams of a distributed and fused program: orders fragments, joins gradients' all-reduces in buckets,
/// gives every value a place and every dependency between queues a wait. Time and memory are linear in ops times
/// micro-batches and do not depend on the number of ranks. Throws Error with op and script line where a program cannot
/// be run so.
Plan lower(Program fused, const Mesh& mesh, Persistent& persistent, const LowerOptions& options = {});

/// What a rank allocates.
struct ArenaBytes {
    int64_t persistent = 64;
    int64_t scratch = 64;
    int64_t both() const { return persistent + scratch; }
};

/// Of the ranks of each class: the places of all programs, and the scratch that their plans take turns in. The plans
/// are of one mesh, one at least.
std::vector<ArenaBytes> arena_bytes(const Persistent& persistent, const std::vector<const Plan*>& plans);

}  // namespace orrery
