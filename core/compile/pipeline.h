#pragma once
#include <span>
#include <string_view>

#include "compile/passes/join_axes.h"
#include "compile/recipe.h"
#include "orrery/program.h"
#include "plan/chunks/chunks.h"
#include "plan/lower/lower.h"

namespace orrery {

struct CompileOptions : LowerOptions {
    PropagateOptions redistribution;
    std::map<std::string, std::vector<ChunkTable>> collectives;  ///< by axis: its chunk tables, already proved
    std::map<std::string, std::string> transports;               ///< by axis: name of its transport
    int64_t memory_bytes = 0;                                    ///< device memory of one rank; 0: no limit
    /// Whether the device has this kernel; ops are fused only if so. Empty: it has all kernels.
    std::function<bool(const KernelSpec&)> runs;
    bool proved = true;        ///< prove the plan; false for plans that a search only compares
    bool status_word = false;  ///< add the status word (passes/status_word.h) to train steps
    SnapshotPlace snapshot = SnapshotPlace::none;
    PassLook look;
};

AxisCarriers carriers_of(const CompileOptions& options);

/// A part of the compiler: passes that run together.
enum class PassPart : uint8_t {
    record,      ///< functions of the script are recorded as a program for one device
    mark,        ///< strategies mark the program for a mesh
    distribute,  ///< values get layouts, and collectives are inserted
    fuse,        ///< pairs of ops become one where the device has a kernel for both
};

/// What a pass gets besides the program. Null: `mesh` before `mark`, `recipe` after it, `options` before `distribute`.
struct PassInput {
    ProgramEntry entry = {};
    const Recipe* recipe = nullptr;
    int64_t microbatches = 1;
    const Mesh* mesh = nullptr;
    const CompileOptions* options = nullptr;
};

/// A compiler pass: a function from program to program. It has either `run` or `make`.
struct Pass {
    PassPart part;
    unsigned roles;  ///< ProgramRoles that it runs for, as bits; all after part `mark`, where the role is unknown
    std::string_view name;
    void (*run)(Program& program, const PassInput& input);                      ///< changes the program in place
    Program (*make)(const Program& program, const PassInput& input) = nullptr;  ///< returns another program
    bool (*needed)(const Program& program, const PassInput& input) = nullptr;   ///< whether it applies; nullptr: yes
};

/// All compiler passes in the order in which they run. `lower` and `prove` follow them.
std::span<const Pass> passes();

/// Runs the passes of one part. If a recording pass leaves no ops, the script does not have this program, and further
/// passes are skipped. The program is copied only if a pass changes it in place.
Program run_passes(PassPart part, const Program& program, const PassInput& input);
Program run_passes(PassPart part, Program&& program, const PassInput& input);

/// Runs the passes of part `distribute` on an annotated program: adds stages, recomputation, layouts and collectives.
Program distribute(const Program& annotated, const Mesh& mesh, const CompileOptions& options = {});

/// Fuses ops of a distributed program and lowers it to a plan. Checks the program (check_program) but not the plan.
Plan plan_of(Program distributed, const Mesh& mesh, Persistent& persistent, const CompileOptions& options = {});

/// Throws Error unless the plan is complete, cannot deadlock under the contracts of the transports, and fits in memory.
void prove(const Plan& plan, const CompileOptions& options);

}  // namespace orrery
