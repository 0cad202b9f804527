// Implements the argument of an optimizer's function: update:params, count, loss, state, set, send, arrived, result,
// loss_scale.
#include <fmt/format.h>

#include "base/text.h"
#include "compile/capacity.h"
#include "compile/islands.h"
#include "compile/passes/code_errors.h"
#include "compile/program_set.h"
#include "compile/step_value.h"
#include "ir/describe.h"
#include "ir/op.h"
#include "ir/sent.h"
#include "lua/record/capacity.h"
#include "lua/record/guard.h"
#include "lua/record/loss_scale.h"
#include "lua/record/traced.h"
#include "lua/state.h"

namespace orrery::lua {

namespace {

struct UpdateView {
    std::shared_ptr<Tape> tape;
};

}  // namespace

template <>
struct Class<UpdateView> {
    static constexpr const char* name = "orrery.update";
    static constexpr const char* what = "an update";
};

namespace {

int next_param(lua_State* L) {
    const std::shared_ptr<Tape>& tape = check<UpdateView>(L, lua_upvalueindex(1)).tape;
    const Program& program = *tape->program;
    const auto count = static_cast<ValueId>(program.values.size());
    auto id = static_cast<ValueId>(lua_tointeger(L, lua_upvalueindex(2)));
    while (id < count && (program.value(id).role != Role::param || program.grad_of(id) == none)) ++id;
    if (id >= count) return 0;
    lua_pushinteger(L, id + 1);
    lua_replace(L, lua_upvalueindex(2));
    push_symbol(L, tape, id);
    return 1;
}

/// for p in update:params() do ... end: iterates over the params that have a gradient.
int update_params(lua_State* L) {
    check<UpdateView>(L, 1);
    lua_pushvalue(L, 1);
    lua_pushinteger(L, 0);
    lua_pushcclosure(L, guard<next_param>, 2);
    return 1;
}

/// Returns the tape of a function of program:also that calls update:`what` with a value.
std::shared_ptr<Tape> tape_to_set(lua_State* L, std::string_view what) {
    const std::shared_ptr<Tape> tape = check<UpdateView>(L, 1).tape;
    if (!tape->also() || tape->takes_batch || tape->guard.by != UpdateGuard::By::undecided)
        fail(L, fmt::format("update:{}: {}\n  {}", what,
                            tape->also() ? "the function has already read gradients of the batch or the loss scale"
                                         : "an optimizer's gradients are those of its step",
                            tape->also() ? "call it before p:grad(), update:count() and update:loss_scale()"
                                         : "give others in a function of program:also"));
    return tape;
}

/// update:gradient(p, value): sets what p:grad() is in this function, f32 of the param's shape, so that an optimizer
/// may use it in place of the gradient of a batch.
int update_gradient(lua_State* L) {
    const std::shared_ptr<Tape> tape = tape_to_set(L, "gradient");
    const ValueId p = check_own(L, 2, tape), value = check_own(L, 3, tape);
    const Program& program = *tape->program;
    if (program.grad_of(p) == none)
        bad_argument(L, 2, fmt::format("{} is not one of update:params()", describe(program, p)));
    if (program.value(value).type != TensorType{DType::f32, program.value(p).type.shape})
        bad_argument(L, 3,
                     fmt::format("{} is not f32 of the shape of {}", describe(program, value), describe(program, p)));
    tape->given[p] = value;
    return 0;
}

/// update:count() -> a value f32[]: the number by which the sum of losses is divided. update:count(value) sets it for
/// gradients that update:gradient gives.
int update_count(lua_State* L) {
    if (!lua_isnoneornil(L, 2)) {
        const std::shared_ptr<Tape> own = tape_to_set(L, "count");
        own->count = check_own(L, 2, own);
        if (own->program->value(own->count).type != TensorType{DType::f32, {}})
            bad_argument(L, 2, fmt::format("{} is not f32 []", describe(*own->program, own->count)));
        return 0;
    }
    const std::shared_ptr<Tape>& tape = check<UpdateView>(L, 1).tape;
    if (tape->count == none && !tape->given.empty())
        fail(L,
             "update:count: update:gradient set the gradients, but update:count(value) did not set their divisor\n  "
             "call "
             "update:count(value) first; update:count(o.constant(1)) divides by 1");
    if (tape->count == none) read_batch(L, *tape);
    push_symbol(L, tape, tape->count != none ? tape->count : *tape->program->result("count"));
    return 1;
}

/// update:loss() -> a value f32[]: the sum of the losses of the batch.
int update_loss(lua_State* L) {
    const std::shared_ptr<Tape>& tape = check<UpdateView>(L, 1).tape;
    read_batch(L, *tape);
    push_symbol(L, tape, *tape->program->result("loss_sum"));
    return 1;
}

int update_loss_scale(lua_State* L) {
    const std::shared_ptr<Tape>& tape = check<UpdateView>(L, 1).tape;
    ask_for_scale(L, *tape);
    if (!tape->given.empty()) {
        lua_pushnil(L);
        return 1;
    }
    if (tape->loss_scale) read_batch(L, *tape);
    push_loss_scale(L, tape);
    return 1;
}

/// update:overflow() -> a value f32[], above 0 if the step overflows its capacity; nil if the model has none.
int update_overflow(lua_State* L) {
    const std::shared_ptr<Tape>& tape = check<UpdateView>(L, 1).tape;
    tape->guard.reads_overflow = true;
    if (tape->given.empty()) read_batch(L, *tape);
    if (tape->overflow == none)
        lua_pushnil(L);
    else
        push_symbol(L, tape, tape->overflow);
    return 1;
}

/// Whether the program takes the batch of one island.
bool of_island(const Tape& tape) { return !tape.whole && !tape.program->axes_with(islands_option).empty(); }

/// update:island_count() -> the count of the batch, f32[], in a step of islands, which changes nothing where it is 0;
/// nil without islands.
int update_island_count(lua_State* L) {
    const std::shared_ptr<Tape>& tape = check<UpdateView>(L, 1).tape;
    tape->guard.reads_island_count = true;
    if (!of_island(*tape)) {
        lua_pushnil(L);
        return 1;
    }
    read_batch(L, *tape);
    push_symbol(L, tape, *tape->program->result("count"));
    return 1;
}

/// Records that an optimizer owns a state. Throws Error if another one does in another program, as both would then set
/// the same array.
void own_state(lua_State* L, const Tape& tape, const std::string& name, const void* owner) {
    auto& owners = (*tape.owners)[name];
    for (const auto& [function, other] : owners)
        if (function != tape.function && other != owner)
            fail(L, fmt::format("two optimizers of the round own the state {}\n  give one of them a name for its "
                                "states: name = \"outer\" of o.optim",
                                name));
    owners[tape.function] = owner;
}

/// update:state(p, name [, init [, owner]]) -> a state of the param, f32 of its shape, initially zeros. `owner`: a Lua
/// value; no other owner may have this state in another program.
int update_state(lua_State* L) {
    const std::shared_ptr<Tape> tape = check<UpdateView>(L, 1).tape;
    const ValueId p = check_own(L, 2, tape);
    const std::string name = check_text(L, 3);
    const std::string kind = lua_isnoneornil(L, 4) ? "zeros" : check_text(L, 4);
    if (kind != "zeros" && kind != "ones") bad_argument(L, 4, "\"zeros\" or \"ones\" expected");
    const Value& param = tape->program->value(p);
    const TensorType type{DType::f32, param.type.shape};
    const std::string full = param.name + "." + name;
    if (!lua_isnoneornil(L, 5)) own_state(L, *tape, full, lua_topointer(L, 5));
    push_symbol(L, tape, tape->builder.state(p, full, type, {{"kind", kind}}, where(L)));
    return 1;
}

/// update:set(target, value): assigns the value to a param or state at the end of the step.
int update_set(lua_State* L) {
    const std::shared_ptr<Tape> tape = check<UpdateView>(L, 1).tape;
    const ValueId target = check_own(L, 2, tape), value = check_own(L, 3, tape);
    tape->builder.update(target, guarded(L, tape, target, value), where(L));
    return 0;
}

/// Returns a state that a function sends or waits for, and marks it. Throws Error in a function that has no islands.
ValueId sent_state(lua_State* L, const std::shared_ptr<Tape>& tape, std::string_view what) {
    const ValueId id = check_own(L, 2, tape);
    Value& state = tape->program->value(id);
    if (!tape->whole)
        fail(L,
             fmt::format("update:{}: islands send to each other in programs that take no batch\n  name their axis in "
                         "o.strategy.islands, and call it in a function of program:also that reads no batch",
                         what));
    if (state.role != Role::state)
        bad_argument(L, 2, fmt::format("{} is not a state of update:state or o.state", describe(*tape->program, id)));
    state.init.set(sent_mark, true);
    return id;
}

/// update:send(state, value): sets the state at the end of the program, and begins to send it, so that steps run
/// meanwhile. The program that calls update:arrived waits for it.
int update_send(lua_State* L) {
    const std::shared_ptr<Tape> tape = check<UpdateView>(L, 1).tape;
    const ValueId target = sent_state(L, tape, "send");
    tape->builder.update(target, check_own(L, 3, tape), where(L));
    return 0;
}

/// update:arrived(state) -> the sum over all islands of what another program has sent, without the islands' dim.
int update_arrived(lua_State* L) {
    const std::shared_ptr<Tape> tape = check<UpdateView>(L, 1).tape;
    const ValueId state = sent_state(L, tape, "arrived");
    for (const Op& op : tape->program->ops)
        if (op.inputs == std::vector{state}) {
            push_symbol(L, tape, op.outputs[0]);
            return 1;
        }
    push_symbol(L, tape, tape->builder.one("sum", {state}, {{"dims", std::vector<int64_t>{0}}}, where(L)));
    return 1;
}

/// The state of what encoding has left out of what islands sent of a param; none: they have no feedback, or it is a
/// vector, which is not encoded.
ValueId state_owed(lua_State* L, Tape& tape, ValueId p) {
    const Value& param = tape.program->value(p);
    const bool matrix = tape.whole && param.type.shape.size() > 2;
    if (!matrix || !tape.program->edge(param.dims[0], Phase::backward).flag("feedback")) return none;
    const std::string name = error_name(param.name, param.dims[0]);
    if (const auto known = tape.program->find(name)) return *known;
    return tape.builder.state(p, name, TensorType{DType::f32, param.type.shape},
                              {{"kind", std::string("zeros")}, {"rows_add", true}, {std::string(islands_add), true}},
                              where(L));
}

/// update:owed(p): what encoding has left out of what islands sent of the param, to be added to what they send next;
/// nil without feedback.
int update_owed(lua_State* L) {
    const std::shared_ptr<Tape> tape = check<UpdateView>(L, 1).tape;
    const ValueId owed = state_owed(L, *tape, check_own(L, 2, tape));
    if (owed == none)
        lua_pushnil(L);
    else
        push_symbol(L, tape, owed);
    return 1;
}

/// update:moved(p, sum): says that the sum over islands is of what they moved the param by, with what they owed, so
/// that any codec may send it.
int update_moved(lua_State* L) {
    const std::shared_ptr<Tape> tape = check<UpdateView>(L, 1).tape;
    const ValueId p = check_own(L, 2, tape), sum = check_own(L, 3, tape);
    const Program& program = *tape->program;
    Shape slice = program.value(p).type.shape;
    if (!tape->whole || program.value(p).role != Role::param)
        bad_argument(L, 2, fmt::format("{} is not a param of all islands", describe(program, p)));
    slice.erase(slice.begin());
    const OpId maker = program.value(sum).op;
    const bool over_islands = maker != none && op_def(program.op(maker).kind).reduces &&
                              program.op(maker).attributes.integers("dims") == Shape{0};
    if (!over_islands || program.value(sum).type != TensorType{DType::f32, slice})
        bad_argument(L, 3,
                     fmt::format("{} is not a sum over islands, f32 of the shape of {} without its first dim",
                                 describe(program, sum), describe(program, p)));
    const ValueId owed = state_owed(L, *tape, p);
    tape->program->value(sum).of = owed == none ? p : owed;
    return 0;
}

/// update:states(apply): the states of o.state take their next values where `apply`, u8 [], is not 0.
int update_states(lua_State* L) {
    const std::shared_ptr<Tape>& tape = check<UpdateView>(L, 1).tape;
    const ValueId apply = check_own(L, 2, tape);
    if (tape->program->value(apply).type != TensorType{DType::u8, {}})
        bad_argument(L, 2, fmt::format("{} is not u8 []: write x:all_finite()", describe(*tape->program, apply)));
    guard_states(L, *tape, apply);
    return 0;
}

/// update:result(name, value): reports the value to the host after each step.
int update_result(lua_State* L) {
    const std::shared_ptr<Tape>& tape = check<UpdateView>(L, 1).tape;
    const std::string name = check_text(L, 2);
    if (name.ends_with(step_value_ending))
        bad_argument(L, 2,
                     fmt::format("result {} would be read as one of o.result without a count; give it another name",
                                 quote(name)));
    if (name == overflow_name || name == below_name)
        bad_argument(L, 2, fmt::format("result {} is reserved for o.overflow; give it another name", quote(name)));
    const size_t told = quotients(*tape->program).size();
    tape->builder.result(name, check_own(L, 3, tape), where(L));
    if (quotients(*tape->program).size() != told)
        bad_argument(L, 2,
                     fmt::format("result {} and another result would be read as a sum and its count, as of o.result; "
                                 "give it another name",
                                 quote(name)));
    return 0;
}

}  // namespace

void push_update(lua_State* L, const std::shared_ptr<Tape>& tape) { push_object(L, UpdateView{tape}); }

Program record_update(lua_State* L, const Traced& traced, Program program, int also) {
    State& state = state_of(L);
    if (state.tape)
        fail(L, "train_with cannot be called inside a trace or an optimizer; call it at the top level of the script");
    const Origin& origin = also < 0 ? traced.recipe.train_origin : traced.recipe.also[also].origin;
    const size_t results = program.results.size();
    const auto tape = std::make_shared<Tape>(std::move(program));
    for (const ValueId id : tape->program->inputs()) tape->inputs.emplace(tape->program->value(id).name, id);
    tape->use = TapeUse::update;
    tape->states = tape->program->updates.size();
    tape->function = also;
    tape->owners = traced.owners;
    tape->takes_batch = also < 0;
    tape->streams = also < 0 ? 0 : int64_t{also + 1} << 20;  // random streams that differ from those of the model
    tape->loss_scale = traced.recipe.loss_scale;
    tape->builder.set_phase(Phase::update);
    tape->builder.push_scope("optimizer");
    struct Current {
        State& state;
        ~Current() {
            state.tape->use = TapeUse::closed;
            for (const int made : {state.tape->guard.take, state.tape->guard.unscaled})
                luaL_unref(state.lua(), LUA_REGISTRYINDEX, made);
            state.tape = nullptr;
        }
    } current{state};
    state.tape = tape;
    const size_t first = tape->states;
    if (also < 0) tape->overflow = sum_overflow(*tape, origin);
    lua_rawgeti(L, LUA_REGISTRYINDEX, also < 0 ? traced.optimizer : traced.also[also]);
    push_update(L, tape);
    tape->whole = also >= 0 && !tape->program->result("loss_sum");
    if (!tape->whole) {
        call_for(L, 1, 0, origin);
    } else if (lua_pcall(L, 1, 0, 0) != LUA_OK) {
        if (!tape->takes_batch) lua_error(L);
        lua_pop(L, 1);
        return Program();
    }
    require_states(L, tape);
    std::vector<Update>& updates = tape->program->updates;
    if (updates.size() == first && also >= 0)
        throw Error(origin, fmt::format("the program {} updates nothing\n  call update:set(target, value) in its "
                                        "function",
                                        quote(traced.recipe.also[also].name)));
    if (!tape->takes_batch) {  // drops the model's results and updates, which belong to steps with a batch
        updates.erase(updates.begin(), updates.begin() + static_cast<std::ptrdiff_t>(first));
        std::vector<Result>& all = tape->program->results;
        all.erase(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(results));
        return *tape->program;
    }
    if (tape->overflow != none) refuse_named_load(*tape);
    const UpdateGuard& guard = tape->guard;
    if (of_island(*tape) && guard.by == UpdateGuard::By::function && !guard.reads_island_count)
        throw Error(origin,
                    "the optimizer guards its updates itself (update:loss_scale), but not against a step whose batch "
                    "counts nothing on an island\n  read update:island_count(), and set nothing where it is 0");
    if (tape->overflow != none && guard.by == UpdateGuard::By::function && !guard.reads_overflow)
        throw Error(
            origin,
            "the optimizer guards its updates itself (update:loss_scale), but not against a step that overflows "
            "its capacity\n  read update:overflow(), and set nothing where it is above 0");
    return *tape->program;
}

void open_update(lua_State* L) {
    const luaL_Reg update[] = {{"params", guard<update_params>},
                               {"count", guard<update_count>},
                               {"state", guard<update_state>},
                               {"gradient", guard<update_gradient>},
                               {"set", guard<update_set>},
                               {"send", guard<update_send>},
                               {"arrived", guard<update_arrived>},
                               {"owed", guard<update_owed>},
                               {"moved", guard<update_moved>},
                               {"states", guard<update_states>},
                               {"result", guard<update_result>},
                               {"loss", guard<update_loss>},
                               {"loss_scale", guard<update_loss_scale>},
                               {"overflow", guard<update_overflow>},
                               {"island_count", guard<update_island_count>},
                               {nullptr, nullptr}};
    add_class<UpdateView>(L, update);
}

}  // namespace orrery::lua
