#pragma once
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "compile/ids.h"
#include "compile/pipeline.h"
#include "compile/recipe.h"
#include "plan/summary.h"

namespace orrery {

/// The proved plans of one experiment over one persistent arena.
struct Compiled {
    std::string name;
    Mesh mesh;
    Network contracts;                                           ///< by axis, as the plans were proved
    std::map<std::string, std::vector<ChunkTable>> collectives;  ///< by axis: what is not the transport's own
    Persistent persistent;
    std::optional<Plan> train, eval, logits;
    BatchRamp ramp;
    BatchSizes sizes;           ///< sequences of every step
    std::vector<Plan> smaller;  ///< the train step at the ramp's other sizes, ascending
    int64_t parameters = 0;
    double flops_per_step = 0;  ///< model_flops of the program
    int64_t tokens_per_step = 0;
    std::map<std::string, IdRange> ids;  ///< by input: what the model has rows and logits for

    /// What all ranks must have alike: the parts of the plans' fingerprints, transports and collectives.
    std::vector<std::pair<std::string, std::string>> agreement() const;
    /// Every plan: train and its smaller batches, eval, logits.
    std::vector<const Plan*> plans() const;
    /// Bytes of the persistent arena: the places of all programs, on the pipeline rank that holds most.
    int64_t persistent_bytes() const;
    /// Bytes of the scratch arena that all plans take turns in.
    int64_t scratch_bytes() const;
    /// Both arenas: what a session takes from the device.
    int64_t arena_bytes() const { return persistent_bytes() + scratch_bytes(); }
};

/// The algorithms that a run of it uses, for its summary and bounds.
inline WireBytes wire_bytes_of(const Compiled& compiled) { return {compiled.contracts, compiled.collectives}; }

/// Propagates, lowers and checks train, its smaller batches and eval for the experiment's mesh. Throws Error when the
/// arenas of the session, which hold the places of all these, are larger than `memory_bytes`.
Compiled compile_training(const Experiment& experiment, const CompileOptions& options);
/// The same for `logits`, on one rank.
Compiled compile_sampling(const Experiment& experiment, const CompileOptions& options);

/// Throws Error when an axis of the mesh larger than 1 splits nothing: no mark, stage or strategy names it, so its
/// ranks would all do the same work. `mesh`: the table [mesh], for places.
void refuse_idle_axes(const Experiment& experiment, Config& mesh);

/// Parameters, peak memory per rank, bytes and count of each collective, flops.
std::string summary(const Compiled& compiled);

}  // namespace orrery
