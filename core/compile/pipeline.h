#pragma once
#include <span>
#include <string_view>

#include "compile/passes/join_axes.h"
#include "compile/recipe.h"
#include "orrery/program.h"
#include "plan/chunks/chunks.h"
#include "plan/lower/lower.h"

namespace orrery {

/// Options for compiling a program to a plan.
struct CompileOptions : LowerOptions {
    PropagateOptions redistribution;
    std::map<std::string, std::vector<ChunkTable>> collectives;  ///< by axis: proved chunk tables
    std::map<std::string, std::string> transports;               ///< by axis: name of the axis' transport
    int64_t memory_bytes = 0;                                    ///< device memory of one rank; 0: no limit
    /// True if the device has this kernel; ops are fused only if so. Empty: the device has all kernels.
    std::function<bool(const KernelSpec&)> runs;
    bool proved = true;        ///< false: skip the proofs, for plans that a search only compares
    bool status_word = false;  ///< for train steps: add the status word that ranks exchange
    SnapshotPlace snapshot = SnapshotPlace::none;
    PassLook look;  ///< called after each pass; may be empty
};

AxisCarriers carriers_of(const CompileOptions& options);

/// A part of the list of compiler passes. The passes of one part run together.
enum class PassPart : uint8_t {
    record,      ///< functions of the script become a program for one device
    mark,        ///< strategies mark the program for a mesh
    distribute,  ///< values get layouts, and collectives are inserted
    fuse,        ///< ops become kernels that the device has
};

/// The inputs of a pass besides the program. Null: `mesh` before part `mark`, `recipe` after it, `options` up to it.
struct PassInput {
    ProgramEntry entry = {};
    const Recipe* recipe = nullptr;
    int64_t microbatches = 1;
    const Mesh* mesh = nullptr;
    const CompileOptions* options = nullptr;
};

/// A compiler pass: a function from program to program, either `run` or `make`.
struct Pass {
    PassPart part;
    unsigned roles;  ///< bits of the ProgramRoles that it runs for; all after part `mark`, where the role is unknown
    std::string_view name;
    void (*run)(Program& program, const PassInput& input);                      ///< changes the given program in place
    Program (*make)(const Program& program, const PassInput& input) = nullptr;  ///< returns another program
    bool (*needed)(const Program& program, const PassInput& input) = nullptr;   ///< whether it must run; nullptr: yes
};

/// All compiler passes in the order in which they run. `lower` and `prove` follow them.
std::span<const Pass> passes();

/// Runs the compiler passes of one part. If a recording pass leaves no ops, the program does not exist and the rest is
/// skipped. The program is copied only if a pass changes it in place.
Program run_passes(PassPart part, const Program& program, const PassInput& input);
Program run_passes(PassPart part, Program&& program, const PassInput& input);

/// Runs the passes of part `distribute`: adds stages, recomputation, layouts and collectives to an annotated program.
Program distribute(const Program& annotated, const Mesh& mesh, const CompileOptions& options = {});

/// Fuses and lowers a distributed program. Checks the program (`check_program`) but not the plan.
Plan plan_of(Program distributed, const Mesh& mesh, Persistent& persistent, const CompileOptions& options = {});

/// Throws Error unless the plan is complete, has no deadlock under the transports' contracts, and fits in memory.
void prove(const Plan& plan, const CompileOptions& options);

}  // namespace orrery
