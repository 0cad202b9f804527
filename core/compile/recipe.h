#pragma once
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "compile/islands.h"
#include "compile/passes/loss_scale.h"
#include "compile/passes/propagate.h"
#include "compile/program_set.h"
#include "compile/ramp.h"
#include "compile/round.h"
#include "orrery/schedule.h"
#include "orrery/strategy.h"

namespace orrery {

/// The tensor of a published checkpoint (safetensors) that a param is loaded from, or a state of o.state, as the script
/// declares. A param may be stacked: then there is a tensor for each index along its first dim, and `tensor` has * in
/// place of the index.
struct WeightSource {
    std::string param;
    std::string tensor;
    std::string from = {};   ///< tensor that files to load have instead, without * for all indices; "": the same
    bool stacked = false;    ///< the param has a tensor for each index along its first dim
    bool fresh = false;      ///< a file may lack this tensor: the param then keeps its initial values
    bool transpose = false;  ///< the tensor in the file is [.., out, in], the param is [.., in, out]
    int dim = -1;            ///< dim of which only `size` elements from `start` are read; -1: the whole tensor is read
    int64_t start = 0;
    int64_t size = 0;
    int64_t stride = 1;  ///< distance between these elements: above 1 in a tensor that interleaves its params
    int padded = -1;     ///< dim that has only `rows` elements in the file; the param adds zeros; -1: none
    int64_t rows = 0;
    Origin origin;

    /// The shape of a tensor that stores a whole param of shape `param`: one index of it, if it is stacked.
    Shape stored_shape(Shape param) const;
    /// The name of the tensor at an index along the first dim of the param.
    std::string tensor_at(int64_t index) const;
    /// The names of all tensors that a param of shape `param` is stored in.
    std::vector<std::string> tensors(const Shape& param) const;
};

/// A tensor of a published checkpoint that may repeat another one (`of`), such as a head tied to the embedding.
struct WeightCopy {
    std::string tensor, of;
};

/// The tensors of a published checkpoint: those that params are loaded from, and others that it may contain.
struct PublishedWeights {
    std::vector<WeightSource> sources;  ///< one for each param of the train step; empty: the script names no source
    std::vector<std::string> ignore;    ///< tensors that are not loaded: "*.attn.bias", * matches any characters
    std::vector<WeightCopy> copies;     ///< tensors that are not loaded if they equal another one bit for bit
    std::string prefix = {};            ///< prefix that names of tensors may lack: "transformer."
    std::string published = {};         ///< JSON text for `orrery export` (see run/export); "": none
};

struct AskedStrategy {
    std::shared_ptr<Strategy> strategy;
    std::string name;
    Origin origin;
    std::vector<std::pair<std::string, std::string>> words;  ///< text options of the strategy, such as axes
};

/// Called after each pass with its name, its result, and the mesh; nullptr before the program has layouts.
using PassLook = std::function<void(std::string_view pass, const Program& program, const Mesh* mesh)>;

/// A program that a script adds to the model, with the same inputs and params. It is evaluated with the model.
struct AddedProgram {
    std::string name;
    Origin origin;
    /// Records the program for a batch size. Its results loss_sum and count are the ratio `name`.
    std::function<Program(int64_t batch)> forward;
    bool mean = false;  ///< the program has no count: its loss is a mean over the batch
};

/// A program that a script adds to the step (program:also): the model and its gradients with another update.
struct AlsoProgram {
    std::string name;
    Origin origin;
    /// Adds the update to a program that has gradients. If it reads none of what a batch gives, it drops the results of
    /// the model, and the program takes no batch.
    std::function<Program(Program)> update;
};

/// What makes the programs of an experiment for any mesh and batch: recording functions of the script, and options.
/// Functions live as long as the Lua state of the script. Call them on its thread, or through `later`.
struct Recipe {
    std::string name;
    int64_t batch = 0;    ///< number of samples of a full step: size of the inputs' dim "batch"
    Origin trace_origin;  ///< script line that requested the program
    Origin train_origin;  ///< script line that requested the training
    /// Records the model with results loss_sum and count, for a role and the sizes of an entry.
    std::function<Program(const ProgramEntry& entry)> forward;
    bool mean = false;               ///< the model gives no count: its loss is a mean over the batch
    std::vector<double> capacities;  ///< capacities of the train step (o.capacity), ascending; empty: it has none
    /// Adds the optimizer to a program that has gradients.
    std::function<Program(Program)> update;
    /// Makes the pipeline schedule. If `pipeline.chunks` is 0, sets it to the number of chunks that the schedule needs.
    std::function<Schedule(Pipeline& pipeline, int64_t ranks, int64_t microbatches)> schedule;
    std::vector<AddedProgram> added;
    std::vector<AlsoProgram> also;
    Round round;  ///< the order of the step and of the programs in `also`
    std::vector<AskedStrategy> strategies;
    Islands islands;  ///< what the strategies make islands for a mesh (make_experiment)
    DType precision = DType::f32;
    int64_t microbatches = 1;
    std::optional<LossScale> loss_scale;
    BatchRamp ramp;
    PropagateOptions redistribution;  ///< limits that the script sets on redistributions, and its decompositions
    std::vector<std::string> codecs;  ///< texts of the codecs that the script declares (Codec::text)
    PublishedWeights weights;
    PassLook look;
    /// Runs work that calls the recipe's functions on the script's thread, which waits in run:train. Thread-safe.
    std::function<void(const std::function<void()>& work)> later;

    /// A hash of names and numbers of the recipe, and of its decompositions' and codecs' text, which ranks compare
    /// before they make programs. What its functions and strategies do is compared later, by fingerprints of plans.
    std::string digest() const;
};

/// The programs of one experiment, annotated for a mesh. They share params, so names and stored layouts of these agree.
struct Experiment {
    std::shared_ptr<const Recipe> recipe;
    Mesh mesh;  ///< mesh with the number of micro-batches of a full step
    /// The first step of the round, its smaller steps made so far, other programs of the round with theirs, eval, added
    /// ones, logits. The first has all params and states.
    std::vector<MarkedProgram> programs;
    std::vector<std::string> axes;     ///< axes that options of strategies name
    std::optional<Schedule> schedule;  ///< pipeline schedule; nullopt without a pipeline

    const Program& train() const { return programs.front().program; }
    Program& train() { return programs.front().program; }
    const MarkedProgram* find(std::string_view name) const;
};

/// The index in round.names() of a program that trains or updates, of any batch and capacity.
size_t round_index(const Round& round, const ProgramEntry& entry);

/// Records the first step of the round for a batch, without marks. Throws Error with script lines: that of run:train if
/// the batch is not a whole number of micro-batches.
Program train_step(const Recipe& recipe, int64_t batch);

/// The batch sizes of the ramp below the full batch, ascending. Throws Error at `train_origin` if one is not a whole
/// number of micro-batches, or the increments do not end at the full batch.
std::vector<int64_t> smaller_batches(const Recipe& recipe);
ProgramEntry train_entry(const Recipe& recipe, int64_t batch);

/// Makes all programs except the smaller train steps, annotated for the mesh (without micro-batches).
/// `step`: result of train_step for the full batch. `step_alone`: make only this one. Throws Error with script lines,
/// also if a step of the ramp has fewer micro-batches than the schedule of the pipeline has.
Experiment make_experiment(Recipe recipe, Program step, const Mesh& mesh, bool step_alone = false);
/// Makes and annotates a further program of the experiment. Throws Error with script lines.
MarkedProgram make_program(const Experiment& experiment, const ProgramEntry& entry);
/// Adds the smaller train steps to the experiment, the smallest first: those of up to `batches` batches of the ramp
/// and, for each batch, of up to `capacities` capacities below the largest.
void make_sizes(Experiment& experiment, size_t batches = std::numeric_limits<size_t>::max(),
                size_t capacities = std::numeric_limits<size_t>::max());

}  // namespace orrery
