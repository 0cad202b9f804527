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

/// An experiment's compiled programs, with proved plans. They share params, states, inputs and results in one arena.
struct Compiled {
    std::string name;
    Mesh mesh;
    Network contracts;  ///< by axis: transport contract that the plans were proved under
    std::map<std::string, std::vector<ChunkTable>> collectives;  ///< by axis: collectives given as chunk tables
    AxisCarriers carriers;  ///< properties of axes that decide which can share a message
    Persistent persistent;
    std::vector<CompiledProgram> programs;  ///< in the order of Experiment::programs; the first has params and states
    BatchRamp ramp;
    Round round;
    Islands islands;
    std::optional<LossScale> loss_scale;
    BatchSizes sizes;                ///< batch of every step, in sequences
    std::vector<double> capacities;  ///< capacities of the train step, ascending; empty: it has none
    std::string recipe;              ///< hash of the recipe (Recipe::digest)
    int64_t parameters = 0;
    double flops_per_step = 0;           ///< floating-point operations of a train step (model_flops)
    double full_flops_per_step = 0;      ///< the same with MaskedPairs::counted
    int64_t tokens_per_step = 0;         ///< token ids of a train step on all ranks; 0: no input has token ids
    bool nats = false;                   ///< the loss is that of a prediction for each token, in nats
    std::map<std::string, IdRange> ids;  ///< by input: ids that all programs accept
    int64_t evaluated = 0;               ///< number of held-out samples per evaluation
    SnapshotPlace snapshot = SnapshotPlace::none;

    const CompiledProgram* find(std::string_view name) const;
    const Plan& train() const { return programs.front().plan; }
    /// What must be equal on all ranks, by name: fingerprints of plans, transports, collectives, plugins of
    /// ops and codecs.
    std::vector<std::pair<std::string, std::string>> agreement() const;
    std::vector<const Plan*> plans() const;
    /// By class of ranks: sizes of the arenas in device memory, without the snapshot.
    std::vector<ArenaBytes> arenas() const { return arena_bytes(persistent, plans()); }
    /// The arenas of the class of ranks that needs the max number of bytes.
    ArenaBytes largest_arenas() const;
    /// Bytes of the snapshot on a rank of a class; 0 without a snapshot.
    int64_t snapshot_bytes(size_t rank_class) const;
    /// Bytes of the snapshot on a rank of the class with the largest arenas.
    int64_t largest_snapshot() const;
};

/// The programs of the round, by index of their names in it, at the full batch and the largest capacity; nullptr: an
/// action of the host.
std::vector<const CompiledProgram*> round_programs(const Compiled& compiled);
/// The program of the round with this name; "": its first. Throws Error, naming `flag`, for an unknown name.
const CompiledProgram& round_program(const Compiled& compiled, std::string_view name, std::string_view flag);
/// One op of each op plugin that the programs use, sorted by plugin.
std::vector<const PluginOp*> brought_ops(const Compiled& compiled);
/// Throws Error at the first op of a plugin that has no kernel for this kind of device. For commands without a device.
void refuse_without_kernels(const Compiled& compiled, std::string_view device_kind);

/// The first op that cannot run on this device, as no device plugin of this tree has its kernel; nullptr without one.
const Op* runs_elsewhere(const Compiled& compiled, Device& device);

inline WireBytes wire_bytes_of(const Compiled& compiled) { return {compiled.contracts, compiled.collectives}; }

/// Compiles and proves all programs of an experiment except logits. Throws Error if the arenas exceed `memory_bytes`.
Compiled compile_training(const Experiment& experiment, const CompileOptions& options);
/// Compiles programs of an experiment for evaluation, without the train step.
Compiled compile_alone(const Experiment& experiment, const std::vector<MarkedProgram>& programs,
                       const CompileOptions& options);
/// Compiles the program `logits` for one rank. Throws Error if the experiment has none.
Compiled compile_sampling(const Experiment& experiment, const CompileOptions& options);
/// Compiles a program with fewer positions (at_length) for one rank. Its values are placed in the arena `places`.
CompiledProgram compile_shorter(const MarkedProgram& made, Persistent& places, const CompileOptions& options);
/// Compiles a further program. Its values are placed in the arena `places`, which grows if needed.
CompiledProgram compile_program(const Experiment& experiment, const MarkedProgram& made, Persistent& places,
                                const CompileOptions& options);
/// Makes and compiles a program of the experiment, and adds it to `compiled` unless it is there already.
void add_program(Compiled& compiled, const Experiment& experiment, const ProgramEntry& entry,
                 const CompileOptions& options);

/// Adds a snapshot for asynchronous saves to the session. Throws Error if it does not fit in memory.
void add_snapshot(Compiled& compiled, SnapshotPlace place, int64_t memory_bytes);

/// Whether this is a train step with a batch below `full`, or a capacity below the largest.
bool is_smaller_step(const ProgramEntry& entry, int64_t full);

/// The calls that evaluate `samples` held-out samples: of "eval" and of programs of the script, with smaller batches
/// for the rest. The caller must add programs that `compiled` lacks.
std::vector<Calls> evaluation_calls(const Compiled& compiled, int64_t samples);

/// Throws Error for an axis of size above 1 that no mark, pipeline or strategy names, as all its ranks would do the
/// same work. `mesh`: the table [mesh] of the configuration, for the line in the message.
void refuse_idle_axes(const Experiment& experiment, Config& mesh);

/// The summary for users: parameters, max memory per rank, bytes and count of each collective, FLOPs.
std::string summary(const Compiled& compiled);

}  // namespace orrery
