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

/// The purpose of a program of an experiment.
enum class ProgramRole : uint8_t {
    train = 1,     ///< forward, backward, update
    evaluate = 2,  ///< forward without dropout; results are sums and counts over the samples
    logits = 4,    ///< "tokens" [1, seq] -> result "logits" [1, seq, vocab]
};

/// One program of an experiment: its function in the recipe and its sizes.
struct ProgramEntry {
    std::string name;  ///< "train", "train of 8", "eval", "eval of 3", "logits", or a script's own
    ProgramRole role = ProgramRole::train;
    int64_t batch = 0;   ///< samples per call: the size of the inputs' dim "batch"
    bool whole = false;  ///< every rank computes all samples; strategies do not split the inputs
    int added = -1;      ///< index in Recipe::added; -1: the model
    bool mean = false;   ///< the script gave no count, so the loss is a mean over the samples
    int64_t length = 0;  ///< the size of the inputs' dim "seq"; 0: as the script declares it

    bool operator==(const ProgramEntry&) const = default;
};

/// The source of an input's contents.
enum class Filler : uint8_t {
    data,    ///< the array of this name in the data source
    step,    ///< the number of the step, f32
    seed,    ///< the seed word of the step, u32
    status,  ///< the status that this rank sends to the others (compile/passes/status_word), f32
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
    std::string_view unit;  ///< "nats"; "" when only the script knows it
    bool adds_up = false;   ///< true: sum the results of several calls; false: each call's result is separate
};

/// A ratio that the script declares in its forward pass (o.result). It has the results NAME.sum and NAME.count, f32[],
/// which are summed over micro-batches, ranks and calls as the loss and its count are. Reports show sum / count.
struct Quotient {
    std::string name, sum, count;
};
Quotient quotient_of(std::string_view name);
/// All ratios of a program, in the order of its results.
std::vector<Quotient> quotients(const Program& program);

Filler filler_of(const Value& input);
std::vector<InputDecl> declared_inputs(const Program& program);
std::vector<ResultDecl> declared_results(const Program& program);

/// A program after the pass `annotate`, and its mesh with the micro-batches.
struct MarkedProgram {
    ProgramEntry entry;
    Program program;
    Mesh mesh;
};

struct CompiledProgram {
    ProgramEntry entry;
    Plan plan;
    std::vector<SnapshotPlan> snapshots = {};  ///< by class of ranks; proved with the plan
};

/// Inputs and results as text: "eval: tokens i32[batch=8,seq=64] (data) -> loss_sum f32[] nats, adds up; count ...".
std::string declared(const CompiledProgram& program);

/// The entry of a full program at a smaller batch: "eval of 3".
ProgramEntry at_batch(const ProgramEntry& full, int64_t batch);

/// The entry at another size of the dim "seq": "logits of 64 positions".
ProgramEntry at_length(const ProgramEntry& entry, int64_t length);

/// An entry and how often to call it. `calls_for` returns the calls that evaluate each of `samples` samples once: full
/// calls, then smaller ones. `microbatches`: of a full call; `ways`: the number of shards of the batch on the mesh.
struct Calls {
    std::string of;  ///< name of the full entry
    ProgramEntry entry;
    int64_t times = 0;
};
std::vector<Calls> calls_for(const ProgramEntry& full, int64_t samples, int64_t microbatches, int64_t ways);

}  // namespace orrery
