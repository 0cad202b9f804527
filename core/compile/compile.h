#pragma once
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "compile/ids.h"
#include "compile/pipeline.h"
#include "compile/recipe.h"
#include "ir/plugin_ops.h"
#include "orrery/device.h"
#include "plan/summary.h"

namespace orrery {

/// The proved plans of one experiment over one persistent arena.
struct Compiled {
    std::string name;
    Mesh mesh;
    Network contracts;                                           ///< by axis, as the plans were proved
    std::map<std::string, std::vector<ChunkTable>> collectives;  ///< by axis: what is not the transport's own
    AxisCarriers carriers;                                       ///< what decided which axes share messages
    Persistent persistent;
    std::vector<CompiledProgram> programs;  ///< as Experiment::programs; the first holds params and states
    BatchRamp ramp;
    std::optional<LossScale> loss_scale;
    BatchSizes sizes;    ///< sequences of every step
    std::string recipe;  ///< Recipe::digest
    int64_t parameters = 0;
    double flops_per_step = 0;  ///< model_flops of the program
    int64_t tokens_per_step = 0;
    std::map<std::string, IdRange> ids;  ///< by input: what all programs have rows and logits for
    int64_t evaluated = 0;               ///< held-out samples that its programs evaluate
    SnapshotPlace snapshot = SnapshotPlace::none;

    /// nullptr when there is none of the name.
    const CompiledProgram* find(std::string_view name) const;
    /// The full train step.
    const Plan& train() const { return programs.front().plan; }
    /// What all ranks must have alike: the parts of the plans' fingerprints, transports, collectives, plugins of ops.
    std::vector<std::pair<std::string, std::string>> agreement() const;
    std::vector<const Plan*> plans() const;
    /// What a session takes from the device, by class of ranks.
    std::vector<ArenaBytes> arenas() const { return arena_bytes(persistent, plans()); }
    /// On the ranks that take most.
    ArenaBytes largest_arenas() const;
    /// Of the ranks of a class, 0 where none is taken.
    int64_t snapshot_bytes(size_t rank_class) const;
    /// On the ranks whose arenas are the largest.
    int64_t largest_snapshot() const;
};

/// One op of each plugin that brought ops of these programs, by the plugins' names.
std::vector<const PluginOp*> brought_ops(const Compiled& compiled);
/// Throws Error at the script's line of an op whose plugin has no kernel for this kind of device: where the device
/// itself cannot be asked.
void refuse_without_kernels(const Compiled& compiled, std::string_view device_kind);

/// The first op that a pass has put in for other devices (OpDef::elsewhere) and that this one lacks; nullptr.
const Op* runs_elsewhere(const Compiled& compiled, Device& device);

/// The algorithms that a run of it uses, for its summary and bounds.
inline WireBytes wire_bytes_of(const Compiled& compiled) { return {compiled.contracts, compiled.collectives}; }

/// Distributes, lowers and proves all of the experiment's programs but logits, for its mesh. Throws Error when the
/// arenas of the session, which hold the places of all these, are larger than `memory_bytes`.
Compiled compile_training(const Experiment& experiment, const CompileOptions& options);
/// The same for programs that evaluate, made of the experiment, without the train step: the first holds the params.
Compiled compile_alone(const Experiment& experiment, const std::vector<MarkedProgram>& programs,
                       const CompileOptions& options);
/// The same for `logits`, on one rank.
Compiled compile_sampling(const Experiment& experiment, const CompileOptions& options);
/// One of them more, of fewer positions (at_length), over the places of the others.
CompiledProgram compile_shorter(const MarkedProgram& made, Persistent& places, const CompileOptions& options);
/// The same for one program more, whose places `places` gets where it has none of the name that are large enough.
CompiledProgram compile_program(const Experiment& experiment, const MarkedProgram& made, Persistent& places,
                                const CompileOptions& options);
/// Makes and compiles one that `compiled` lacks.
void add_program(Compiled& compiled, const Experiment& experiment, const ProgramEntry& entry,
                 const CompileOptions& options);

/// From here on the session has a snapshot, there. Throws Error where it does not fit.
void add_snapshot(Compiled& compiled, SnapshotPlace place, int64_t memory_bytes);

/// A train step of a ramp, before the full batch.
bool is_smaller_step(const ProgramEntry& entry, int64_t full);

/// What evaluates `samples` samples of held-out data: "eval" and the script's own programs, each with the smaller calls
/// for what is left of a full batch. Entries that `compiled` lacks are to be added to it.
std::vector<Calls> evaluation_calls(const Compiled& compiled, int64_t samples);

/// Throws Error when an axis of the mesh larger than 1 splits nothing: no mark, stage or strategy names it, so its
/// ranks would all do the same work. `mesh`: the table [mesh], for places.
void refuse_idle_axes(const Experiment& experiment, Config& mesh);

/// Parameters, peak memory per rank, bytes and count of each collective, flops.
std::string summary(const Compiled& compiled);

}  // namespace orrery
