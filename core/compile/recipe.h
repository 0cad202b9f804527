#pragma once
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "compile/passes/loss_scale.h"
#include "compile/passes/propagate.h"
#include "compile/program_set.h"
#include "compile/ramp.h"
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
    int padded = -1;  ///< the dim of the stored tensor that has `rows`, of which the param has more: zeros behind it
    int64_t rows = 0;
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
    std::string prefix = {};            ///< names that begin with it may stand without it: "transformer."
    std::string published = {};         ///< JSON: what `orrery export` writes beside them, see run/export; "": nothing
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

/// A program that a script adds: it sees the same inputs and params, and is evaluated with the model.
struct AddedProgram {
    std::string name;
    Origin origin;
    /// Records it: results loss_sum and count, of which `name` is the quotient.
    std::function<Program(int64_t batch)> forward;
    bool mean = false;  ///< it gives no count
};

/// All that makes an experiment's programs for any mesh and batch: functions that record, and what is asked for. The
/// functions live as long as the script's Lua and are called on its thread, or as `later` has it.
struct Recipe {
    std::string name;
    int64_t batch = 0;    ///< samples of a full step: the size of the inputs' dim "batch"
    Origin trace_origin;  ///< the script's line that asked for the program
    Origin train_origin;  ///< and for its training
    /// Records the model: results loss_sum and count. `batch`: the size of every dim "batch"; `length`: of every dim
    /// "seq", 0: as declared.
    std::function<Program(bool training, int64_t batch, int64_t length)> forward;
    bool mean = false;  ///< the model gives no count: its loss is a mean over the batch
    /// Records the optimizer behind a differentiated program.
    std::function<Program(Program)> update;
    /// Makes the order of a pipeline's fragments; chunks of 0 become those that the schedule needs.
    std::function<Schedule(Pipeline& pipeline, int64_t ranks, int64_t microbatches)> schedule;
    std::vector<AddedProgram> added;
    std::vector<AskedStrategy> strategies;
    DType precision = DType::f32;
    int64_t microbatches = 1;
    std::optional<LossScale> loss_scale;
    BatchRamp ramp;
    PropagateOptions redistribution;  ///< what the script forbids
    PublishedWeights weights;
    PassLook look;  ///< may be empty
    /// Runs work that calls these functions while the script waits in run:train, on whatever thread.
    std::function<void(const std::function<void()>& work)> later;

    /// What ranks must have alike before programs are made of it one by one: what is given as words and numbers. What
    /// functions and strategies make of it, fingerprints tell when it is made.
    std::string digest() const;
};

/// The programs of one experiment for one mesh, over the same params: names agree, layouts at rest agree. Annotated,
/// not propagated.
struct Experiment {
    std::shared_ptr<const Recipe> recipe;
    Mesh mesh;                            ///< with the micro-batches of a full step
    std::vector<MarkedProgram> programs;  ///< train, the ramp's sizes that are made, eval, added ones, logits
    std::vector<std::string> axes;        ///< of the mesh, or asked for, as the options of strategies name them
    std::optional<Schedule> schedule;     ///< of the fragments, where the mesh has a pipeline

    const Program& train() const { return programs.front().program; }
    Program& train() { return programs.front().program; }
    /// nullptr when there is none of the name.
    const MarkedProgram* find(std::string_view name) const;
};

/// The recorded step at a batch, before strategies see it. Throws Error with script lines; at `train_origin` where the
/// batch is not made of whole micro-batches.
Program train_step(const Recipe& recipe, int64_t batch);

/// The sizes that the ramp takes before the full batch, ascending. Throws Error at `train_origin` when one is not made
/// of whole micro-batches or the rises do not end at the full batch.
std::vector<int64_t> smaller_batches(const Recipe& recipe);
/// The train step at a batch of the ramp.
ProgramEntry train_entry(const Recipe& recipe, int64_t batch);

/// Every program but the ramp's smaller steps, annotated for the mesh (without micro). `step`: what train_step gave for
/// the full batch. Throws Error with script lines, also where a step of the ramp has fewer micro-batches than the
/// pipeline's schedule orders. `step_alone`: the full train step and nothing else.
Experiment make_experiment(Recipe recipe, Program step, const Mesh& mesh, bool step_alone = false);
/// A further program of the experiment. Throws Error with script lines.
MarkedProgram make_program(const Experiment& experiment, const ProgramEntry& entry);
/// Makes the ramp's smaller steps, too: the `most` smallest of them.
void make_sizes(Experiment& experiment, size_t most = std::numeric_limits<size_t>::max());

}  // namespace orrery
