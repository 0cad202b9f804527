// o.trace, program:train_with, parallel, compile; run:summary, train, sample.
#include <fmt/format.h>

#include "base/suggest.h"
#include "base/text.h"
#include "ir/describe.h"
#include "ir/grad.h"
#include "ir/precision.h"
#include "ir/print.h"
#include "layout/stages.h"
#include "lua/data.h"
#include "lua/experiment.h"
#include "lua/fields.h"
#include "lua/loss_scale.h"
#include "lua/schedules.h"
#include "lua/state.h"

namespace orrery::lua {

namespace {

/// What an optimizer's function gets.
struct UpdateView {
    std::shared_ptr<Tape> tape;
};

/// What program:compile returns.
struct Run {
    std::string name;
};

}  // namespace

template <>
struct Class<Traced> {
    static constexpr const char* name = "orrery.program";
    static constexpr const char* what = "a program";
};
template <>
struct Class<UpdateView> {
    static constexpr const char* name = "orrery.update";
    static constexpr const char* what = "an update";
};
template <>
struct Class<Run> {
    static constexpr const char* name = "orrery.run";
    static constexpr const char* what = "a run";
};

namespace {

std::shared_ptr<Tape> named_tape(const std::string& name, bool training) {
    Program start;
    start.name = name;
    auto tape = std::make_shared<Tape>(std::move(start));
    tape->training = training;
    return tape;
}

/// o.trace(name, signature, function) -> program
int trace(lua_State* L) {
    Traced traced;
    traced.name = check_text(L, 1);
    traced.signature = check_signature(L, 2);
    check_function(L, 3);
    lua_settop(L, 3);
    traced.origin = where(L);
    lua_pushvalue(L, 3);
    traced.function = luaL_ref(L, LUA_REGISTRYINDEX);
    traced.train = named_tape(traced.name, true);
    record_forward(L, traced, traced.train, 0, traced.loss_sum, traced.count);
    push_object(L, std::move(traced));
    return 1;
}

Traced& open_program(lua_State* L, std::string_view function) {
    Traced& traced = check<Traced>(L, 1);
    if (traced.compiled) fail(L, fmt::format("{}: the program \"{}\" is compiled already", function, traced.name));
    return traced;
}

DType read_precision(lua_State* L, Fields& fields) {
    Config& config = state_of(L).host().config().table("train");
    const std::string given = fields.text("precision").value_or(config.text("precision", "f32"));
    if (given == "f32") return DType::f32;
    if (given == "bf16") return DType::bf16;
    if (given == "f16") return DType::f16;
    const std::string why =
        fmt::format("no precision {}{}", quote(given), choices("known", given, {"f32", "bf16", "f16"}));
    if (fields.has("precision")) fail(L, why);
    throw Error(config.where("precision"), why);
}

/// program:train_with(optimizer [, { precision = , microbatches = , loss_scale = }]): gradients, then the optimizer's
/// ops.
int train_with(lua_State* L) {
    Traced& traced = open_program(L, "train_with");
    if (traced.has_optimizer) fail(L, "train_with is called twice; a program has one optimizer");
    check_function(L, 2);
    State& state = state_of(L);
    Fields fields(L, 3, "train_with");
    traced.precision = read_precision(L, fields);
    traced.microbatches =
        fields.integer("microbatches", 1).value_or(state.host().config().table("train").integer("microbatches", 1));
    std::optional<LossScale> loss_scale = read_loss_scale(L, fields, traced.precision);
    fields.finish();
    const Origin origin = where(L);
    Program program = *traced.train->program;
    if (traced.precision != DType::f32) set_precision(program, traced.precision);
    if (loss_scale) {
        Builder states(program);
        add_loss_scale(states, *loss_scale, origin);
    }
    differentiate(program, *program.result("loss_sum"), loss_scale ? loss_scale->scale : none);
    if (traced.microbatches > 1) program.microbatches(traced.microbatches, origin);
    const auto tape = std::make_shared<Tape>(std::move(program));
    for (const ValueId id : tape->program->inputs()) tape->inputs.emplace(tape->program->value(id).name, id);
    tape->use = TapeUse::update;
    if (loss_scale) tape->loss_scale = std::make_shared<LossScale>(*loss_scale);
    tape->builder.set_phase(Phase::update);
    tape->builder.push_scope("optimizer");
    struct Current {
        State& state;
        ~Current() {
            state.tape->use = TapeUse::closed;
            state.tape = nullptr;
        }
    } current{state};
    state.tape = tape;
    lua_pushvalue(L, 2);
    push_object(L, UpdateView{tape});
    lua_call(L, 1, 0);
    if (tape->program->updates.empty())
        fail(L, "train_with: the optimizer updates no param; it calls update:set(p, value)");
    traced.train = tape;
    traced.has_optimizer = true;
    lua_settop(L, 1);
    return 1;
}

/// The named entries of a list of strategies: what redistributions the script forbids.
void read_redistribution(lua_State* L, PropagateOptions& options) {
    lua_newtable(L);  // without the list
    lua_pushnil(L);
    while (lua_next(L, 2) != 0) {
        if (lua_type(L, -2) == LUA_TSTRING) {
            lua_pushvalue(L, -2);
            lua_insert(L, -2);
            lua_rawset(L, -4);
        } else {
            lua_pop(L, 1);
        }
    }
    Fields fields(L, -1, "parallel");
    options.forbid_implicit = fields.flag("forbid_implicit").value_or(options.forbid_implicit);
    if (const auto mib = fields.number("implicit_budget_mib")) {
        if (!(*mib >= 0)) fields.wrong("implicit_budget_mib", "0 or more");
        options.budget_bytes = static_cast<int64_t>(*mib * 1048576.0);
    }
    fields.finish();
    lua_pop(L, 1);
}

/// program:parallel { strategy, ... [, forbid_implicit = , implicit_budget_mib = ] }
int parallel(lua_State* L) {
    Traced& traced = open_program(L, "parallel");
    check_table(L, 2, "a list of strategies");
    read_redistribution(L, traced.redistribution);
    for (lua_Integer i = 1; lua_rawgeti(L, 2, i) != LUA_TNIL; ++i) {
        const Asked* asked = test<Asked>(L, -1);
        if (!asked) bad_argument(L, 2, fmt::format("entry {} is {}, expected a strategy", i, type_text(L, -1)));
        traced.strategies.push_back(*asked);
        lua_pop(L, 1);
    }
    lua_settop(L, 1);
    return 1;
}

/// program:weights(model:tensors()): where published checkpoints hold the params, for checkpoint.load.
int weights(lua_State* L) {
    Traced& traced = open_program(L, "weights");
    traced.weights = check_weights(L, 2, *traced.train->program);
    lua_settop(L, 1);
    return 1;
}

void annotate(const Traced& traced, Program& program, const Mesh& mesh) {
    for (const Asked& asked : traced.strategies) asked.strategy->annotate(program, mesh);
}

/// The forward program without dropout, annotated like the train program.
Program eval_program(lua_State* L, const Traced& traced, const Program& train, const Mesh& mesh) {
    const auto tape = named_tape(traced.name + ".eval", false);
    ValueId loss_sum = none, count = none;
    record_forward(L, traced, tape, 0, loss_sum, count);
    Program program = std::move(*tape->program);
    if (traced.precision != DType::f32) set_precision(program, traced.precision);
    if (train.microbatches() > 1) program.microbatches(train.microbatches(), traced.origin);
    annotate(traced, program, mesh);
    return program;
}

/// The program from one sequence to its logits. Inputs take no marks: a batch of one is not split.
std::optional<Program> sample_program(lua_State* L, const Traced& traced, const Mesh& mesh) {
    const auto tape = named_tape(traced.name + ".logits", false);
    ValueId loss_sum = none, count = none;
    record_forward(L, traced, tape, 1, loss_sum, count);
    std::optional<Program> program = logits_of(*tape->program);
    if (!program) return std::nullopt;
    if (traced.precision != DType::f32) set_precision(*program, traced.precision);
    Program marked = *program;
    annotate(traced, marked, mesh);
    for (const Mark& mark : marked.marks()) {
        if (marked.value(mark.value).role == Role::input) continue;
        if (mark.what == Mark::What::store)
            program->store(mark.value, mark.axis, mark.placement, mark.origin, mark.optional);
        else
            program->use(mark.value, mark.axis, mark.placement, mark.origin, mark.keep, mark.optional);
    }
    return program;
}

/// program:compile() -> run
int compile(lua_State* L) {
    Traced& traced = open_program(L, "compile");
    if (!traced.has_optimizer) fail(L, "compile: the program has no optimizer; call program:train_with first");
    State& state = state_of(L);
    check_script_table(state);
    const Mesh& mesh = state.host().mesh();
    Experiment experiment;
    experiment.name = traced.name;
    experiment.train = *traced.train->program;
    annotate(traced, experiment.train, mesh);
    experiment.eval = eval_program(L, traced, experiment.train, mesh);
    experiment.logits = sample_program(L, traced, mesh);
    experiment.mesh = mesh.with_microbatches(experiment.train.microbatches());
    experiment.redistribution = traced.redistribution;
    for (const Asked& asked : traced.strategies)
        for (const auto& [key, word] : asked.words)
            if (key == "axis" || mesh.find(word)) experiment.axes.push_back(word);
    if (stage_count(experiment.train, mesh) > 1)
        experiment.schedule = make_schedule(L, experiment.train.pipeline(), mesh.size(experiment.train.pipeline().axis),
                                            experiment.train.microbatches());
    experiment.weights = traced.weights;
    traced.compiled = true;
    state.host().compile(std::move(experiment));
    push_object(L, Run{traced.name});
    return 1;
}

/// program:text() -> the train program as recorded so far, without layouts.
int program_text(lua_State* L) {
    push(L, print(*check<Traced>(L, 1).train->program));
    return 1;
}

// ---- update: what an optimizer's function gets

int next_param(lua_State* L) {
    const std::shared_ptr<Tape>& tape = check<UpdateView>(L, lua_upvalueindex(1)).tape;
    const std::vector<ValueId> params = tape->program->params();
    auto at = static_cast<size_t>(lua_tointeger(L, lua_upvalueindex(2)));
    while (at < params.size() && tape->program->grad_of(params[at]) == none) ++at;
    if (at >= params.size()) return 0;
    lua_pushinteger(L, static_cast<lua_Integer>(at + 1));
    lua_replace(L, lua_upvalueindex(2));
    push_symbol(L, tape, params[at]);
    return 1;
}

/// for p in update:params() do ... end: every param that has a gradient.
int update_params(lua_State* L) {
    check<UpdateView>(L, 1);
    lua_pushvalue(L, 1);
    lua_pushinteger(L, 0);
    lua_pushcclosure(L, guard<next_param>, 2);
    return 1;
}

/// update:count() -> what the sum of losses is divided by, f32[].
int update_count(lua_State* L) {
    const std::shared_ptr<Tape>& tape = check<UpdateView>(L, 1).tape;
    push_symbol(L, tape, *tape->program->result("count"));
    return 1;
}

int update_loss_scale(lua_State* L) {
    push_loss_scale(L, check<UpdateView>(L, 1).tape);
    return 1;
}

/// update:state(p, name [, init]) -> a state of the param, f32 of its shape, zeros at first.
int update_state(lua_State* L) {
    const std::shared_ptr<Tape> tape = check<UpdateView>(L, 1).tape;
    const Symbol& p = check<Symbol>(L, 2);
    const std::string name = check_text(L, 3);
    const std::string kind = lua_isnoneornil(L, 4) ? "zeros" : check_text(L, 4);
    if (kind != "zeros" && kind != "ones") bad_argument(L, 4, "\"zeros\" or \"ones\" expected");
    const TensorType type{DType::f32, p.value().type.shape};
    const std::string full = p.value().name + "." + name;
    push_symbol(L, tape, tape->builder.state(p.id, full, type, {{"kind", kind}}, where(L)));
    return 1;
}

/// update:set(target, value): at the end of the step a param or state takes the value.
int update_set(lua_State* L) {
    const std::shared_ptr<Tape>& tape = check<UpdateView>(L, 1).tape;
    const Symbol& target = check<Symbol>(L, 2);
    tape->builder.update(target.id, check<Symbol>(L, 3).id, where(L));
    return 0;
}

/// update:result(name, value): the host reads it after each step.
int update_result(lua_State* L) {
    const std::shared_ptr<Tape>& tape = check<UpdateView>(L, 1).tape;
    tape->builder.result(check_text(L, 2), check<Symbol>(L, 3).id, where(L));
    return 0;
}

// ---- run

int run_summary(lua_State* L) {
    check<Run>(L, 1);
    push(L, state_of(L).host().summary());
    return 1;
}

/// run:train(data [, { steps = , ... }])
int run_train(lua_State* L) {
    check<Run>(L, 1);
    const Data& data = check<Data>(L, 2);
    Host& host = state_of(L).host();
    Config& train = host.config().table("train");
    Fields fields(L, 3, "run:train");
    TrainOptions options;
    options.origin = where(L);
    options.steps = fields.integer("steps", 1).value_or(train.integer("steps", 0));
    if (options.steps < 1)
        fail(L, "run:train: steps is missing\n  give it here or as train.steps in the configuration");
    options.evaluate_every = fields.integer("evaluate_every", 0).value_or(train.integer("evaluate_every", 0));
    options.evaluate_batches = fields.integer("evaluate_batches", 0).value_or(train.integer("evaluate_batches", 8));
    options.checkpoint_every =
        fields.integer("checkpoint_every", 0).value_or(host.config().table("checkpoint").integer("every_steps", 0));
    options.log_every = fields.integer("log_every", 1).value_or(train.integer("log_every", 1));
    fields.finish();
    host.train(data.spec, options);
    return 0;
}

/// run:sample { prompt = , tokens = , temperature = , top_k = , seed = } -> text
int run_sample(lua_State* L) {
    check<Run>(L, 1);
    Host& host = state_of(L).host();
    Config& config = host.config().table("sample");
    Fields fields(L, 2, "run:sample");
    SampleOptions options;
    options.prompt = fields.text("prompt").value_or(config.text("prompt", ""));
    options.tokens = fields.integer("tokens", 1).value_or(config.integer("tokens", 256));
    options.temperature = fields.number("temperature").value_or(config.number("temperature", 0.8));
    if (!(options.temperature >= 0)) fields.wrong("temperature", "0 or more");
    options.top_k = fields.integer("top_k", 0).value_or(config.integer("top_k", 0));
    options.seed =
        static_cast<uint64_t>(fields.integer("seed", 0).value_or(host.config().table("run").integer("seed", 1)));
    fields.finish();
    push(L, host.sample(options));
    return 1;
}

template <class T>
void add_class(lua_State* L, const luaL_Reg* methods) {
    const luaL_Reg nothing[] = {{nullptr, nullptr}};
    new_class<T>(L, nothing);
    lua_newtable(L);
    luaL_setfuncs(L, methods, 0);
    lua_setfield(L, -2, "__index");
    lua_pop(L, 1);
}

}  // namespace

void open_program(lua_State* L) {
    const luaL_Reg program[] = {{"train_with", guard<train_with>}, {"parallel", guard<parallel>},
                                {"weights", guard<weights>},       {"compile", guard<compile>},
                                {"text", guard<program_text>},     {nullptr, nullptr}};
    add_class<Traced>(L, program);
    const luaL_Reg update[] = {{"params", guard<update_params>},
                               {"count", guard<update_count>},
                               {"state", guard<update_state>},
                               {"set", guard<update_set>},
                               {"result", guard<update_result>},
                               {"loss_scale", guard<update_loss_scale>},
                               {nullptr, nullptr}};
    add_class<UpdateView>(L, update);
    const luaL_Reg run[] = {{"summary", guard<run_summary>},
                            {"train", guard<run_train>},
                            {"sample", guard<run_sample>},
                            {nullptr, nullptr}};
    add_class<Run>(L, run);
    lua_pushcfunction(L, guard<trace>);
    lua_setfield(L, -2, "trace");
}

}  // namespace orrery::lua
