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

/// What a program of an experiment is for.
enum class ProgramRole : uint8_t {
    train = 1,     ///< forward, backward, update
    evaluate = 2,  ///< forward without dropout; a sum and its count over the samples
    logits = 4,    ///< "tokens" [1, seq] -> result "logits" [1, seq, vocab]
};

/// One program of the set: which of the recipe's functions, for how many samples.
struct ProgramEntry {
    std::string name;  ///< "train", "train of 8", "eval", "eval of 3", "logits", or a script's own
    ProgramRole role = ProgramRole::train;
    int64_t batch = 0;   ///< samples of a call: the size of the inputs' dim "batch"
    bool whole = false;  ///< every rank computes all samples: no strategy splits the inputs
    int added = -1;      ///< which of Recipe::added; -1: the model's own
    bool mean = false;   ///< the script gave no count: the sum is a mean over the batch's samples
    int64_t length = 0;  ///< the size of the inputs' dim "seq"; 0: as the script declares them

    bool operator==(const ProgramEntry&) const = default;
};

/// Who gives an input its contents before a call.
enum class Filler : uint8_t {
    data,    ///< the array of its name of the data source
    step,    ///< the number of the step, f32
    seed,    ///< the seed word of the step, u32
    status,  ///< what this rank tells the others (compile/passes/status_word), f32
};
std::string_view name_of(Filler filler);

/// A declared input of a program.
struct InputDecl {
    std::string name;
    TensorType type;
    std::vector<std::string> dims;
    Filler filler = Filler::data;
};

/// A declared result of a program.
struct ResultDecl {
    std::string name;
    TensorType type;
    std::string_view unit;  ///< "nats", "" where the script alone knows it
    bool adds_up = false;   ///< over calls: the total is the sum; otherwise each call's stands alone
};

/// What a script declares in its forward pass (o.result): two results, NAME.sum and NAME.count, f32[], which add up
/// over micro-batches, ranks and calls as the loss and its count do. What is told is their quotient.
struct Quotient {
    std::string name, sum, count;
};
Quotient quotient_of(std::string_view name);
/// In the order of the results.
std::vector<Quotient> quotients(const Program& program);

Filler filler_of(const Value& input);
std::vector<InputDecl> declared_inputs(const Program& program);
std::vector<ResultDecl> declared_results(const Program& program);

/// A program of the set as strategies have marked it, and its mesh with the micro-batches.
struct MarkedProgram {
    ProgramEntry entry;
    Program program;
    Mesh mesh;
};

/// Its proved plan, and what it is.
struct CompiledProgram {
    ProgramEntry entry;
    Plan plan;
    std::vector<SnapshotPlan> snapshots = {};  ///< by class; proved with the plan
};

/// "eval: tokens i32[batch=8,seq=64] (data) -> loss_sum f32[] nats, adds up; count f32[], adds up".
std::string declared(const CompiledProgram& program);

/// The entry of a full program at a smaller batch: "eval of 3".
ProgramEntry at_batch(const ProgramEntry& full, int64_t batch);

/// The same at other sizes of the dim "seq": "logits of 64 positions".
ProgramEntry at_length(const ProgramEntry& entry, int64_t length);

/// The entries that a row of `samples` samples is evaluated with, each and how often. `batch`: of a full call,
/// `microbatches` of it; `ways`: how many shards of the batch the mesh makes. No sample is left out or taken twice.
struct Calls {
    std::string of;  ///< the full call's name
    ProgramEntry entry;
    int64_t times = 0;
};
std::vector<Calls> calls_for(const ProgramEntry& full, int64_t samples, int64_t microbatches, int64_t ways);

}  // namespace orrery
