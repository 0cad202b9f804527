#pragma once
#include <span>
#include <string_view>

#include "compile/passes/join_axes.h"
#include "compile/recipe.h"
#include "orrery/program.h"
#include "plan/chunks/chunks.h"
#include "plan/lower/lower.h"

namespace orrery {

/// What compiling is asked for beside the program.
struct CompileOptions : LowerOptions {
    PropagateOptions redistribution;
    std::map<std::string, std::vector<ChunkTable>> collectives;  ///< by axis, proved
    std::map<std::string, std::string> transports;  ///< by axis: names; axes of one may share a message (join_axes)
    int64_t memory_bytes = 0;                       ///< of one rank; 0: not judged
    /// Whether the device has this kernel: ops that would be fused to one it lacks stay as they are. Empty: it has all.
    std::function<bool(const KernelSpec&)> runs;
    bool proved = true;        ///< false: the plan never runs, one of many that a planner looks at
    bool status_word = false;  ///< ranks tell each other whether to go on: of train steps
    SnapshotPlace snapshot = SnapshotPlace::none;
    PassLook look;  ///< may be empty
};

AxisCarriers carriers_of(const CompileOptions& options);

/// A part of the way from a script to a program that `lower` takes; passes of one part run together.
enum class PassPart : uint8_t {
    record,      ///< the script's functions to a step of one device
    mark,        ///< strategies mark it for a mesh
    distribute,  ///< layouts and collectives
    fuse,        ///< kernels that the device has
};

/// What a pass may look at beside the program. Parts behind `mark` have no recipe, those before it no mesh.
struct PassInput {
    ProgramEntry entry = {};
    const Recipe* recipe = nullptr;
    int64_t microbatches = 1;
    const Mesh* mesh = nullptr;
    const CompileOptions* options = nullptr;
};

/// A function from program to program: one of `run` and `make`.
struct Pass {
    PassPart part;
    unsigned roles;  ///< ProgramRoles it runs for, as bits; behind `mark` all, for `distribute` is told no role
    std::string_view name;
    void (*run)(Program& program, const PassInput& input);                      ///< changes it in place
    Program (*make)(const Program& program, const PassInput& input) = nullptr;  ///< makes another of it
    bool (*needed)(const Program& program, const PassInput& input) = nullptr;   ///< nullptr: always
};

/// All passes, in the order they run; `lower` and the proofs follow.
std::span<const Pass> passes();

/// Runs the passes of a part. Ends early where one leaves no op: there is no such program. The program is copied for
/// the first pass that changes it in place.
Program run_passes(PassPart part, const Program& program, const PassInput& input);
Program run_passes(PassPart part, Program&& program, const PassInput& input);

/// Layouts, stages, recomputation and collectives for an annotated program.
Program distribute(const Program& annotated, const Mesh& mesh, const CompileOptions& options = {});

/// Fuses and lowers a distributed program. The program is checked (`check_program`), the plan is not.
Plan plan_of(Program distributed, const Mesh& mesh, Persistent& persistent, const CompileOptions& options = {});

/// Throws Error unless the plan is complete, free of deadlock under the transports' contracts, and fits.
void prove(const Plan& plan, const CompileOptions& options);

}  // namespace orrery
