// Hides the loss scale from an optimizer's function; protects params and states from gradients that are not finite.
#include "lua/record/guard.h"

#include "lua/record/op_call.h"
#include "lua/state.h"

namespace orrery::lua {
namespace {

ValueId op(lua_State* L, Tape& tape, std::string_view kind, std::vector<ValueId> inputs, Attributes attributes = {}) {
    state_of(L).charge_op();
    return tape.builder.one(kind, std::move(inputs), std::move(attributes), where(L));
}

ValueId number(lua_State* L, Tape& tape, double value) { return constant(L, tape, value, DType::f32); }

ValueId scaled(lua_State* L, Tape& tape, ValueId x, double by) { return op(L, tape, "scale", {x}, {{"by", by}}); }

/// Times `growth` after `interval` finite steps in a row, times `backoff` after one that is not finite.
void set_next_scale(lua_State* L, Tape& tape, ValueId finite) {
    const LossScale& s = *tape.loss_scale;
    const auto state = [&](const char* name) { return tape.program->find(name).value(); };
    const ValueId scale = state("loss_scale"), count = state("loss_scale.good"), steps = state("loss_scale.steps");
    const auto select = [&](ValueId which, ValueId yes, ValueId no) { return op(L, tape, "select", {which, yes, no}); };
    const ValueId good = op(L, tape, "add", {count, number(L, tape, 1)});
    const ValueId interval = number(L, tape, static_cast<double>(s.interval));
    const ValueId grows = op(L, tape, "less_equal", {interval, good});
    const ValueId more = scaled(L, tape, scale, s.growth);
    const ValueId up = op(L, tape, "minimum", {more, number(L, tape, s.most)});
    const ValueId less = scaled(L, tape, scale, s.backoff);
    const ValueId down = op(L, tape, "maximum", {less, number(L, tape, s.least)});
    const ValueId zero = number(L, tape, 0);
    const ValueId updates = select(finite, op(L, tape, "add", {steps, number(L, tape, 1)}), steps);
    const ValueId kept = select(grows, up, scale);
    tape.builder.update(scale, select(finite, kept, down), where(L));
    const ValueId in_a_row = select(grows, zero, good);
    tape.builder.update(count, select(finite, in_a_row, zero), where(L));
    tape.builder.update(steps, updates, where(L));
    tape.builder.result("loss_scale", scaled(L, tape, scale, 1), where(L));
    const ValueId step = host_input(L, tape, "step", DType::f32);
    tape.builder.result("skipped", op(L, tape, "sub", {step, updates}), where(L));
}

/// Before anything of the function's own reads a gradient, so that terms are summed over ranks once.
void begin_guard(lua_State* L, Tape& tape) {
    UpdateGuard& guard = tape.guard;
    if (guard.by != UpdateGuard::By::undecided) return;
    guard.by = UpdateGuard::By::orrery;
    const Program& program = *tape.program;
    ValueId total = none;
    for (ValueId id = 0, count = static_cast<ValueId>(program.values.size()); id < count; ++id) {
        if (program.value(id).role != Role::param || program.grad_of(id) == none) continue;
        const ValueId square = op(L, tape, "sumsq", {program.grad_of(id)});
        total = total == none ? square : op(L, tape, "add", {total, square});
    }
    if (total == none) return;  // nothing to guard against
    guard.applies = op(L, tape, "all_finite", {total});
    if (!tape.loss_scale) return tape.builder.result(guard_name, total, where(L));
    set_next_scale(L, tape, guard.applies);
    guard.unscale = op(L, tape, "div", {number(L, tape, 1), tape.program->find("loss_scale").value()});
}

}  // namespace

ValueId gradient_of(lua_State* L, Tape& tape, ValueId param) {
    const ValueId scaled = tape.program->grad_of(param);
    if (scaled == none) return none;
    begin_guard(L, tape);
    UpdateGuard& guard = tape.guard;
    if (guard.unscale == none) return scaled;
    const auto [found, fresh] = guard.gradients.try_emplace(param, none);
    if (fresh) found->second = op(L, tape, "mul", {scaled, guard.unscale});
    return found->second;
}

ValueId guarded(lua_State* L, Tape& tape, ValueId target, ValueId value) {
    begin_guard(L, tape);
    const Program& program = *tape.program;
    const bool fits = program.value(target).type == program.value(value).type;  // else the update is refused as it is
    if (tape.guard.applies == none || !fits) return value;
    return op(L, tape, "select", {tape.guard.applies, value, target});
}

void ask_for_scale(lua_State* L, Tape& tape) {
    if (tape.guard.by == UpdateGuard::By::orrery)
        fail(L,
             "update:loss_scale: called after p:grad() or update:set, which unscale gradients and guard updates\n"
             "  call it before both");
    tape.guard.by = UpdateGuard::By::function;
}

ValueId applies(lua_State* L, Tape& tape, ValueId total) {
    if (tape.guard.by != UpdateGuard::By::function)
        fail(L, "update:applies: only for a function that guards its own updates; call update:loss_scale() first");
    const ValueId finite = op(L, tape, "all_finite", {total});
    if (tape.loss_scale) set_next_scale(L, tape, finite);
    return finite;
}

}  // namespace orrery::lua
