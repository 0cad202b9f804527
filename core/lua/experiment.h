#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lua/loss_scale.h"
#include "lua/tape.h"
#include "orrery/strategy.h"
#include "run/host.h"

namespace orrery::lua {

/// One input of a signature.
struct InputSpec {
    std::string name;
    TensorType type;
    std::vector<std::string> dims;
};

/// Reads a signature from the stack: a list of { name = , dtype = , shape = , dims = }, or such entries by name.
std::vector<InputSpec> check_signature(lua_State* L, int index);

/// A strategy that a script asked for.
struct Asked {
    std::shared_ptr<Strategy> strategy;
    std::string name;
    Origin origin;
    std::vector<std::pair<std::string, std::string>> words;  ///< its options that are texts, among them its axes
};

template <>
struct Class<Asked> {
    static constexpr const char* name = "orrery.strategy";
    static constexpr const char* what = "a strategy";
};

/// What o.trace returns: the function, the forward program that it recorded and what was asked since.
struct Traced {
    std::string name;
    Origin origin;
    int function = LUA_NOREF;  ///< in the registry
    std::vector<InputSpec> signature;
    std::shared_ptr<Tape> train;
    ValueId loss_sum = none, count = none;
    DType precision = DType::f32;
    int64_t microbatches = 1;
    std::optional<LossScale> loss_scale;
    BatchRamp ramp;
    std::vector<Program> smaller;  ///< the step at the ramp's other sizes, ascending
    bool has_optimizer = false;
    bool compiled = false;
    std::vector<Asked> strategies;
    PropagateOptions redistribution;
    PublishedWeights weights;
};

template <>
struct Class<Traced> {
    static constexpr const char* name = "orrery.program";
    static constexpr const char* what = "a program";
};

/// What program:compile returns.
struct Run {
    std::string name;
};

template <>
struct Class<Run> {
    static constexpr const char* name = "orrery.run";
    static constexpr const char* what = "a run";
};

/// The program at 1, which `function` changes. Throws when it is compiled already.
Traced& open_program(lua_State* L, std::string_view function);
std::shared_ptr<Tape> named_tape(const std::string& name, bool training);

/// Runs the function once more on a new tape. `batch` > 0 replaces the size of every dim named "batch".
void record_forward(lua_State* L, const Traced& traced, const std::shared_ptr<Tape>& tape, int64_t batch,
                    ValueId& loss_sum, ValueId& count);

/// The train step of a forward program: its gradients, then the ops of the optimizer, a function at 2.
std::shared_ptr<Tape> record_step(lua_State* L, const Traced& traced, Program program, int64_t microbatches);
/// The ramp of { ramp = { start = , increment = , samples = } } or of train.ramp_*; none of them: no ramp.
BatchRamp read_ramp(lua_State* L, Fields& fields);
/// Records the train step for the smaller batches of the ramp. The optimizer is at 2.
void record_ramp(lua_State* L, Traced& traced);
/// Throws Error at the pipeline's line where the ramp's steps have fewer micro-batches than its schedule orders.
/// `train`: annotated; the smaller steps are not yet, since a strategy may name the number of the full one.
void check_ramp(const Traced& traced, const Program& train, const Mesh& mesh);
/// program:compile() -> run
int compile_program(lua_State* L);

/// Reads a list of { param = , tensor = , transpose = , part = { dim, index, count } }, dim and index counted from 1,
/// with ignore = { pattern, ... } and copies = { [tensor] = other } beside it. Throws when a param is unknown, missing
/// or named twice, or a part does not fit.
PublishedWeights check_weights(lua_State* L, int index, const Program& program);

/// The program up to the logits of its cross entropy, as the result "logits"; nullopt when it has not exactly one.
std::optional<Program> logits_of(const Program& forward);
/// Only what the results need, renumbered. For programs without marks, gradients or updates.
Program prune(const Program& program);

}  // namespace orrery::lua
