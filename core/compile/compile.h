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

/// The proved plans of one experiment. They share params, states, inputs and results in one persistent arena.
struct Compiled {
    std::string name;
    Mesh mesh;
    Network contracts;  ///< by axis: the transport contracts that the plans were proved under
    std::map<std::string, std::vector<ChunkTable>> collectives;  ///< by axis: replace the transport's collectives
    AxisCarriers carriers;                                       ///< determines which axes share messages
    Persistent persistent;
    std::vector<CompiledProgram> programs;  ///< in the order of Experiment::programs; the first has params and states
    BatchRamp ramp;
    std::optional<LossScale> loss_scale;
    BatchSizes sizes;    ///< batch of every step, in sequences
    std::string recipe;  ///< Recipe::digest
    int64_t parameters = 0;
    double flops_per_step = 0;  ///< model_flops of the train step
    int64_t tokens_per_step = 0;  ///< 0: the inputs are no token ids
    std::map<std::string, IdRange> ids;  ///< by input: the ids that every program accepts
    int64_t evaluated = 0;               ///< number of held-out samples that are evaluated
    SnapshotPlace snapshot = SnapshotPlace::none;

    /// Finds a program by name; nullptr when there is none.
    const CompiledProgram* find(std::string_view name) const;
    const Plan& train() const { return programs.front().plan; }
    /// What must be equal on all ranks, as (name, value): fingerprints of plans, transports, collectives, op plugins.
    std::vector<std::pair<std::string, std::string>> agreement() const;
    std::vector<const Plan*> plans() const;
    /// Device memory of a session without the snapshot, by class of ranks.
    std::vector<ArenaBytes> arenas() const { return arena_bytes(persistent, plans()); }
    /// The largest arenas of any class.
    ArenaBytes largest_arenas() const;
    /// Bytes of the snapshot on ranks of a class; 0 when none is taken.
    int64_t snapshot_bytes(size_t rank_class) const;
    /// Bytes of the snapshot on the class with the largest arenas.
    int64_t largest_snapshot() const;
};

/// One op of each op plugin that the programs use, sorted by plugin.
std::vector<const PluginOp*> brought_ops(const Compiled& compiled);
/// Throws Error at the first op whose plugin has no kernel for this kind of device. Use it when no device can be asked.
void refuse_without_kernels(const Compiled& compiled, std::string_view device_kind);

/// The first op with OpDef::elsewhere that this device has no kernel for; nullptr when there is none.
const Op* runs_elsewhere(const Compiled& compiled, Device& device);

/// The collective algorithms of a run, for its summary and bounds.
inline WireBytes wire_bytes_of(const Compiled& compiled) { return {compiled.contracts, compiled.collectives}; }

/// Distributes, lowers and proves all programs but logits. Throws Error when the arenas exceed `memory_bytes`.
Compiled compile_training(const Experiment& experiment, const CompileOptions& options);
/// Compiles programs that only evaluate, without the train step; the first one has the params.
Compiled compile_alone(const Experiment& experiment, const std::vector<MarkedProgram>& programs,
                       const CompileOptions& options);
/// Compiles `logits` for one rank. Throws Error when the experiment has none.
Compiled compile_sampling(const Experiment& experiment, const CompileOptions& options);
/// Compiles a program of fewer positions (at_length) for one rank, over the arena of the others.
CompiledProgram compile_shorter(const MarkedProgram& made, Persistent& places, const CompileOptions& options);
/// Compiles an additional program into `places`, which grows by what is missing or too small.
CompiledProgram compile_program(const Experiment& experiment, const MarkedProgram& made, Persistent& places,
                                const CompileOptions& options);
/// Makes and compiles a program of the experiment; no effect when `compiled` has it.
void add_program(Compiled& compiled, const Experiment& experiment, const ProgramEntry& entry,
                 const CompileOptions& options);

/// Adds a snapshot to the session. Throws Error when it does not fit in memory.
void add_snapshot(Compiled& compiled, SnapshotPlace place, int64_t memory_bytes);

/// True for a train step of the batch ramp, before the full batch.
bool is_smaller_step(const ProgramEntry& entry, int64_t full);

/// The calls that evaluate `samples` held-out samples: "eval" and programs of the script, each with smaller calls for
/// the rest of a full batch. The caller adds entries that `compiled` lacks.
std::vector<Calls> evaluation_calls(const Compiled& compiled, int64_t samples);

/// Throws Error when an axis of size above 1 is not named by any mark, pipeline or strategy: all its ranks would do the
/// same work. `mesh`: the table [mesh], for the place of the message.
void refuse_idle_axes(const Experiment& experiment, Config& mesh);

/// Text: parameters, max memory per rank, bytes and count of each collective, FLOPs.
std::string summary(const Compiled& compiled);

}  // namespace orrery
