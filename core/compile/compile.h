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

/// An experiment's compiled programs with proved plans. They share params, states, inputs and results in one arena.
struct Compiled {
    std::string name;
    Mesh mesh;
    Network contracts;  ///< transport contracts that the plans were proved under, by axis
    std::map<std::string, std::vector<ChunkTable>> collectives;  ///< by axis: chunk tables that replace the transport's
    AxisCarriers carriers;                                       ///< decides which axes can share messages
    Persistent persistent;
    std::vector<CompiledProgram> programs;  ///< in the order of Experiment::programs; the first has params and states
    BatchRamp ramp;
    std::optional<LossScale> loss_scale;
    BatchSizes sizes;    ///< batch of every step, in sequences
    std::string recipe;  ///< hash of the recipe (Recipe::digest)
    int64_t parameters = 0;
    double flops_per_step = 0;           ///< floating-point operations of a train step (model_flops)
    int64_t tokens_per_step = 0;         ///< token ids of a train step on all ranks; 0: the inputs are no ids
    std::map<std::string, IdRange> ids;  ///< by input: range of the ids that every program accepts
    int64_t evaluated = 0;               ///< number of held-out samples per evaluation
    SnapshotPlace snapshot = SnapshotPlace::none;

    /// Finds a program by name; nullptr when there is none.
    const CompiledProgram* find(std::string_view name) const;
    const Plan& train() const { return programs.front().plan; }
    /// What must be equal on all ranks, as (name, value): fingerprints of plans, transports, collectives, op plugins.
    std::vector<std::pair<std::string, std::string>> agreement() const;
    std::vector<const Plan*> plans() const;
    /// The sizes of the arenas in device memory, without the snapshot, by class of ranks.
    std::vector<ArenaBytes> arenas() const { return arena_bytes(persistent, plans()); }
    /// The arenas of the class of ranks that needs the max number of bytes.
    ArenaBytes largest_arenas() const;
    /// The size in bytes of the snapshot on a rank of a class; 0 if the session has no snapshot.
    int64_t snapshot_bytes(size_t rank_class) const;
    /// The size in bytes of the snapshot on a rank of the class with the largest arenas.
    int64_t largest_snapshot() const;
};

/// For each op plugin that the programs use, one of its ops, sorted by plugin.
std::vector<const PluginOp*> brought_ops(const Compiled& compiled);
/// Throws Error at the first op of a plugin without kernels for this kind of device. Use it when there is no device.
void refuse_without_kernels(const Compiled& compiled, std::string_view device_kind);

/// The first op with OpDef::elsewhere for which this device has no kernel; nullptr if there is none.
const Op* runs_elsewhere(const Compiled& compiled, Device& device);

/// The numbers of bytes that the collectives of a run send, for its summary and bounds.
inline WireBytes wire_bytes_of(const Compiled& compiled) { return {compiled.contracts, compiled.collectives}; }

/// Compiles and proves all programs of an experiment but logits. Throws Error if the arenas exceed `memory_bytes`.
Compiled compile_training(const Experiment& experiment, const CompileOptions& options);
/// Compiles programs for evaluation only, without the train step. The first one has the params.
Compiled compile_alone(const Experiment& experiment, const std::vector<MarkedProgram>& programs,
                       const CompileOptions& options);
/// Compiles the program `logits` for one rank. Throws Error if the experiment has none.
Compiled compile_sampling(const Experiment& experiment, const CompileOptions& options);
/// Compiles a program at a smaller number of positions (at_length) for one rank, with values in the arena `places`.
CompiledProgram compile_shorter(const MarkedProgram& made, Persistent& places, const CompileOptions& options);
/// Compiles an additional program with values in the arena `places`. Adds those that are missing or too small there.
CompiledProgram compile_program(const Experiment& experiment, const MarkedProgram& made, Persistent& places,
                                const CompileOptions& options);
/// Makes and compiles a program of the experiment, and adds it to `compiled`. No effect if `compiled` has it.
void add_program(Compiled& compiled, const Experiment& experiment, const ProgramEntry& entry,
                 const CompileOptions& options);

/// Adds a snapshot for asynchronous saves to the session. Throws Error if it does not fit in memory.
void add_snapshot(Compiled& compiled, SnapshotPlace place, int64_t memory_bytes);

/// True for a train step with a batch that is smaller than `full`, from the batch ramp.
bool is_smaller_step(const ProgramEntry& entry, int64_t full);

/// The calls of programs that evaluate `samples` held-out samples: "eval" and programs of the script, each with smaller
/// batches for the rest. The caller must add programs that `compiled` lacks.
std::vector<Calls> evaluation_calls(const Compiled& compiled, int64_t samples);

/// Throws Error if an axis of size above 1 is not named by any mark, pipeline or strategy: all its ranks would do the
/// same work. `mesh`: the table [mesh] of the configuration, for the line in the message.
void refuse_idle_axes(const Experiment& experiment, Config& mesh);

/// A summary as text: parameters, max memory per rank, bytes and count of each collective, FLOPs.
std::string summary(const Compiled& compiled);

}  // namespace orrery
