// Hides the loss scale from an optimizer's function, and protects params and states from gradients that are not finite.
// The ops are those of guard(update) in orrery/optim.lua.
#include "lua/record/guard.h"

#include <fmt/format.h>

#include "ir/describe.h"
#include "lua/record/capacity.h"
#include "lua/state.h"

namespace orrery::lua {
namespace {

/// Records the guard's ops before the optimizer's function reads a gradient, so that ranks sum gradients only once.
void begin_guard(lua_State* L, const std::shared_ptr<Tape>& tape) {
    UpdateGuard& guard = tape->guard;
    if (guard.by != UpdateGuard::By::undecided) return;
    guard.by = UpdateGuard::By::function;  // so that the library's guard(update) can read the scale
    const int top = lua_gettop(L);
    lua_getglobal(L, "require");
    push(L, "orrery.optim");
    lua_call(L, 1, 1);
    lua_getfield(L, -1, "guard");
    push_update(L, tape);
    lua_call(L, 1, 2);
    guard.take = luaL_ref(L, LUA_REGISTRYINDEX);
    guard.unscaled = luaL_ref(L, LUA_REGISTRYINDEX);
    lua_settop(L, top);
    guard.by = UpdateGuard::By::orrery;
}

ValueId called(lua_State* L, int operands) {
    lua_call(L, operands, 1);
    const ValueId id = check<Symbol>(L, -1).id;
    lua_pop(L, 1);
    return id;
}

}  // namespace

void read_batch(lua_State* L, Tape& tape) {
    if (tape.takes_batch) return;
    if (tape.program->updates.size() > tape.states)
        fail(L,
             "program:also: the function sets a value before it reads a gradient or the count of a batch\n  read them "
             "first, so that a step with gradients that are not finite changes nothing");
    tape.takes_batch = true;
    if (tape.whole) fail(L, "program:also: a batch is read where arrays are those of all islands");
    tape.overflow = sum_overflow(tape, {});
}

ValueId gradient_of(lua_State* L, const std::shared_ptr<Tape>& tape, ValueId param) {
    if (const auto given = tape->given.find(param); given != tape->given.end()) return given->second;
    const ValueId scaled = tape->program->grad_of(param);
    if (scaled == none) return none;
    if (!tape->given.empty())
        fail(L, fmt::format("grad: update:gradient gave other params a gradient, but not {}\n  give each param of "
                            "update:params one, or none",
                            describe(*tape->program, param)));
    read_batch(L, *tape);
    begin_guard(L, tape);
    UpdateGuard& guard = tape->guard;
    if (guard.by == UpdateGuard::By::function || guard.unscaled == LUA_REFNIL) return scaled;
    const auto [found, fresh] = guard.gradients.try_emplace(param, none);
    if (fresh) {
        lua_rawgeti(L, LUA_REGISTRYINDEX, guard.unscaled);
        push_symbol(L, tape, scaled);
        found->second = called(L, 1);
    }
    return found->second;
}

ValueId guarded(lua_State* L, const std::shared_ptr<Tape>& tape, ValueId target, ValueId value) {
    if (!tape->takes_batch) return value;
    begin_guard(L, tape);
    const Program& program = *tape->program;
    const bool fits = program.value(target).type == program.value(value).type;  // others: builder.update throws
    if (tape->guard.by == UpdateGuard::By::function || tape->guard.take == LUA_REFNIL || !fits) return value;
    lua_rawgeti(L, LUA_REGISTRYINDEX, tape->guard.take);
    push_symbol(L, tape, value);
    push_symbol(L, tape, target);
    return called(L, 2);
}

void guard_states(lua_State* L, Tape& tape, ValueId apply) {
    if (tape.guard.by != UpdateGuard::By::function)
        fail(L,
             "update:states: the function has not called update:loss_scale, so Orrery guards states as it guards params"
             "\n  remove the call, or call update:loss_scale first and guard every update in the function");
    if (tape.guard.sets_states)
        fail(L,
             "update:states: called a second time; it decides for all states of o.state at once\n  call it once, with "
             "one condition");
    tape.guard.sets_states = true;
    if (!tape.takes_batch) return;
    for (size_t i = 0; i < tape.states; ++i) {
        Update& update = tape.program->updates[i];
        const Origin& origin = tape.program->value(update.target).origin;
        update.value = tape.builder.one("select", {apply, update.value, update.target}, {}, origin);
    }
    tape.states = 0;
}

void require_states(lua_State* L, const std::shared_ptr<Tape>& tape) {
    if (!tape->takes_batch) return;
    if (tape->states > 0) begin_guard(L, tape);  // calls update:states
    if (tape->states > 0)
        fail(L, fmt::format("the optimizer handles the loss scale itself, but not {} (o.state)\n  call "
                            "update:states(apply), where apply, u8 [], is 0 in a step that must change nothing",
                            describe(*tape->program, tape->program->updates.front().target)));
}

void ask_for_scale(lua_State* L, Tape& tape) {
    if (tape.guard.by == UpdateGuard::By::orrery)
        fail(L,
             "update:loss_scale: called after p:grad() or update:set, which unscale gradients and guard updates\n"
             "  call it before both");
    tape.guard.by = UpdateGuard::By::function;
}

}  // namespace orrery::lua
