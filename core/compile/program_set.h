#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/mesh.h"
#include "orrery/plan.h"
#include "orrery/program.h"
#include "plan/snapshot.h"

namespace orrery {

/// What a program of an experiment is for. The values are bits (Pass::roles).
enum class ProgramRole : uint8_t {
    train = 1,     ///< train step: forward, backward, update
    evaluate = 2,  ///< forward pass without dropout; results are sums and counts over the samples
    logits = 4,    ///< forward pass: "tokens" [1, seq] -> result "logits" [1, seq, vocab]
    update = 8,    ///< program of a round that takes no batch: updates of params and states
};

/// The name, purpose and sizes of one program of an experiment, from which it is made.
struct ProgramEntry {
    std::string name;  ///< "train", "train of 8", "train at 1.25", "eval", "eval of 3", "logits", or a script's own
    ProgramRole role = ProgramRole::train;
    int64_t batch = 0;    ///< number of samples per call: size of the inputs' dim "batch"
    bool whole = false;   ///< every rank computes all samples; inputs are not split
    int added = -1;       ///< index in Recipe::added; -1: the program is of the model itself
    bool mean = false;    ///< the script gives no count, so the loss is a mean over the samples
    int64_t length = 0;   ///< size of the inputs' dim "seq"; 0: as the script declares it
    double capacity = 0;  ///< number that o.capacity returns while a train step is recorded; 0: the largest
    int also = -1;        ///< index in Recipe::also; -1: the program is not of program:also

    bool operator==(const ProgramEntry&) const = default;
};

/// What the host fills an input of a program with at each step.
enum class Filler : uint8_t {
    data,    ///< the array with the name of the input in the data source
    step,    ///< the number of the step, as f32
    seed,    ///< the seed word of the step, as u32
    status,  ///< the rank's status for others (passes/status_word.h), as f32
};
std::string_view name_of(Filler filler);

struct InputDecl {
    std::string name;
    TensorType type;
    std::vector<std::string> dims;
    Filler filler = Filler::data;
};

struct ResultDecl {
    std::string name;
    TensorType type;
    bool adds_up = false;  ///< results of several calls are added; false: each call has its own
};

/// A ratio that the script declares (o.result), as results NAME.sum and NAME.count, f32[]. Both are summed over
/// micro-batches, ranks and calls, as the loss and its count are. Reports show sum / count.
struct Quotient {
    std::string name, sum, count;
};
Quotient quotient_of(std::string_view name);
std::vector<Quotient> quotients(const Program& program);

Filler filler_of(const Value& input);
std::vector<InputDecl> declared_inputs(const Program& program);
std::vector<ResultDecl> declared_results(const Program& program);

/// A program annotated for a mesh (pass `annotate`), and that mesh with the program's number of micro-batches.
struct MarkedProgram {
    ProgramEntry entry;
    Program program;
    Mesh mesh;
};

struct CompiledProgram {
    ProgramEntry entry;
    Plan plan;
    std::vector<SnapshotPlan> snapshots = {};  ///< by class of ranks: its snapshot; proved with the plan
};

/// The program's inputs and results as text: "eval: tokens i32[batch=8,seq=64] (data) -> loss_sum f32[], adds up".
std::string declared(const CompiledProgram& program);

/// The entry of a program with a smaller batch than `full`, "eval of 3".
ProgramEntry at_batch(const ProgramEntry& full, int64_t batch);

/// The entry of a train step with a capacity below the largest, "train at 1.25".
ProgramEntry at_capacity(const ProgramEntry& entry, double capacity);

/// The entry of a program with another size of the dim "seq", "logits of 64 positions".
ProgramEntry at_length(const ProgramEntry& entry, int64_t length);

/// A program, and how often to call it.
struct Calls {
    std::string of;  ///< name of the program at the full batch
    ProgramEntry entry;
    int64_t times = 0;
};
std::vector<Calls> calls_for(const ProgramEntry& full, int64_t samples, int64_t microbatches, int64_t ways);

}  // namespace orrery
