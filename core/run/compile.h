#pragma once
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "orrery/communicator.h"
#include "plan/chunks.h"
#include "plan/lower.h"
#include "plan/summary.h"
#include "run/agreement.h"
#include "run/host.h"

namespace orrery {

struct CompileOptions {
    std::map<std::string, TransportContract> contracts;          ///< by axis
    std::map<std::string, std::vector<ChunkTable>> collectives;  ///< by axis, proved
    int threads_per_rank = 1;
    int64_t memory_bytes = 0;  ///< 0: not judged
    /// What the device says of a kernel; see LowerOptions.
    std::function<int64_t(const KernelSpec&)> workspace;
    std::function<bool(const KernelSpec&)> runs;
};

/// The proved plans of one experiment over one persistent arena.
struct Compiled {
    std::string name;
    Mesh mesh;
    std::map<std::string, TransportContract> contracts;          ///< by axis, as the plans were proved
    std::map<std::string, std::vector<ChunkTable>> collectives;  ///< by axis: what is not the transport's own
    Persistent persistent;
    std::optional<Plan> train, eval, logits;
    BatchRamp ramp;
    BatchSizes sizes;           ///< sequences of every step
    std::vector<Plan> smaller;  ///< the train step at the ramp's other sizes, ascending
    int64_t parameters = 0;
    double flops_per_step = 0;  ///< 6 N per token plus 12 T H D per token and attention layer (PaLM, appendix B)
    int64_t tokens_per_step = 0;
    int64_t vocabulary = 0;  ///< token ids that the model has rows and logits for; 0: it has neither

    /// SHA-256 over the plans' fingerprints.
    std::string fingerprint() const;
    /// What all ranks must have alike: the parts of the plans' fingerprints, transports and collectives.
    Agreement agreement() const;
    /// Every plan: train and its smaller batches, eval, logits.
    std::vector<const Plan*> plans() const;
    /// Bytes of the persistent arena: the places of all programs, on the pipeline rank that holds most.
    int64_t persistent_bytes() const;
    /// Bytes of the scratch arena that all plans take turns in. The same on every rank of the job, whatever its class:
    /// peers map each other's arenas by equal offsets.
    int64_t scratch_bytes() const;
    /// Both arenas: what a session takes from the device.
    int64_t arena_bytes() const { return persistent_bytes() + scratch_bytes(); }
};

/// The algorithms that a run of it uses, for its summary and bounds.
inline Wires wires_of(const Compiled& compiled) { return {compiled.contracts, compiled.collectives}; }

/// Propagates, lowers and checks train, its smaller batches and eval for the experiment's mesh. Throws Error when the
/// arenas of the session, which hold the places of all these, are larger than `memory_bytes`.
Compiled compile_training(const Experiment& experiment, const CompileOptions& options);
/// The same for `logits`, on one rank.
Compiled compile_sampling(const Experiment& experiment, const CompileOptions& options);

/// The fewest rows of a table that an input is looked up in, or logits that an input is the target of; 0: none.
int64_t vocabulary_of(const Program& program);

/// Throws Error when an axis of the mesh larger than 1 splits nothing: no mark, stage or strategy names it, so its
/// ranks would all do the same work. `mesh`: the table [mesh], for places.
void refuse_idle_axes(const Experiment& experiment, Config& mesh);

/// Parameters, peak memory per rank, bytes and count of each collective, flops.
std::string summary(const Compiled& compiled);

}  // namespace orrery
