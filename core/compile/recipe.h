#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "compile/loss_scale.h"
#include "compile/ramp.h"
#include "layout/propagate.h"
#include "orrery/schedule.h"
#include "orrery/strategy.h"

namespace orrery {

/// Where a param lies in a published checkpoint (safetensors), as the script's model says.
struct WeightSource {
    std::string param;       ///< its name in the programs
    std::string tensor;      ///< its name in the file
    bool transpose = false;  ///< the file holds [out, in], the param is [in, out]
    int dim = -1;            ///< a part of the stored tensor along this dim; -1: all of it
    int64_t start = 0;
    int64_t size = 0;
    Origin origin;
};

/// A tensor that a published file may hold twice: as a head of its own name that is tied to the embedding.
struct WeightCopy {
    std::string tensor, of;
};

/// Where published files hold the params, and what else such a file may hold.
struct PublishedWeights {
    std::vector<WeightSource> sources;  ///< every param of train once, or empty: the script names no source
    std::vector<std::string> ignore;    ///< tensors that no param is read from: "*.attn.bias", * is any letters
    std::vector<WeightCopy> copies;     ///< the same, where bit-equal to the other
};

/// What a program of an experiment is for.
enum class ProgramRole : uint8_t {
    train = 1,     ///< forward, backward, update
    evaluate = 2,  ///< forward without dropout; results loss_sum, count
    logits = 4,    ///< "tokens" [1, seq] -> result "logits" [1, seq, vocab]
};

/// A strategy that a script asked for.
struct AskedStrategy {
    std::shared_ptr<Strategy> strategy;
    std::string name;
    Origin origin;
    std::vector<std::pair<std::string, std::string>> words;  ///< its options that are texts, among them its axes
};

/// Sees a program after each pass: its name, the pass, the program; the mesh once it has layouts, else nullptr.
using PassLook = std::function<void(std::string_view pass, const Program& program, const Mesh* mesh)>;

/// All that makes an experiment's programs for any mesh and batch: functions that record, and what is asked for. The
/// functions live as long as the script's Lua and are called on its thread.
struct Recipe {
    std::string name;
    int64_t batch = 0;    ///< sequences of a full step: the size of the inputs' dim "batch"
    Origin trace_origin;  ///< the script's line that asked for the program
    Origin train_origin;  ///< and for its training
    /// Records the model: results loss_sum and count. `batch`: the size of every dim "batch".
    std::function<Program(bool training, int64_t batch)> forward;
    /// Records the optimizer behind a differentiated program.
    std::function<Program(Program)> update;
    /// Makes the order of a pipeline's fragments; chunks of 0 become those that the schedule needs.
    std::function<Schedule(Pipeline& pipeline, int64_t ranks, int64_t microbatches)> schedule;
    std::vector<AskedStrategy> strategies;
    DType precision = DType::f32;
    int64_t microbatches = 1;
    std::optional<LossScale> loss_scale;
    BatchRamp ramp;
    PropagateOptions redistribution;  ///< what the script forbids
    PublishedWeights weights;
    PassLook look;  ///< may be empty
};

/// The programs of one experiment, over the same params: names agree, layouts at rest agree. Annotated, not propagated.
struct Experiment {
    std::string name;
    Program train;                 ///< forward, backward, update
    BatchRamp ramp;                ///< how the batch grows to train's
    std::vector<Program> smaller;  ///< the step at the ramp's other sizes, ascending; as `train` but for the batch
    std::optional<Program> eval;   ///< see ProgramRole
    std::optional<Program> logits;
    Mesh mesh;                         ///< with micro
    PropagateOptions redistribution;   ///< what the script forbids
    std::vector<std::string> axes;     ///< of the mesh, or asked for, as the options of strategies name them
    std::optional<Schedule> schedule;  ///< of the fragments, where the mesh has a pipeline
    PublishedWeights weights;
};

/// The recorded step at a batch, before strategies see it. Throws Error with script lines; at `train_origin` where the
/// batch is not made of whole micro-batches.
Program train_step(const Recipe& recipe, int64_t batch);

/// The sizes that the ramp takes before the full batch, ascending. Throws Error at `train_origin` when one is not made
/// of whole micro-batches or the rises do not end at the full batch.
std::vector<int64_t> smaller_batches(const Recipe& recipe);

/// Every program, annotated for the mesh (without micro). `step`: what train_step gave for the full batch. Throws Error
/// with script lines, also where a step of the ramp has fewer micro-batches than the pipeline's schedule orders.
Experiment make_experiment(const Recipe& recipe, Program step, const Mesh& mesh);

}  // namespace orrery
