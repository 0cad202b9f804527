#include "lua/record/loss_scale.h"

#include <fmt/format.h>

#include "lua/state.h"

namespace orrery::lua {

std::optional<LossScale> read_loss_scale(lua_State* L, Fields& fields, DType precision) {
    LossScale scale;
    fields.push_field("loss_scale");
    const int at = lua_gettop(L);
    const int type = lua_type(L, at);
    if (type != LUA_TNIL && type != LUA_TBOOLEAN && type != LUA_TTABLE)
        fields.wrong("loss_scale", "true, false or a table of options");
    const bool wanted = type == LUA_TNIL ? precision == DType::f16 : type == LUA_TTABLE || lua_toboolean(L, at);
    if (type == LUA_TTABLE) {
        Fields given(L, at, "train_with: loss_scale");
        scale.initial = given.number("initial").value_or(scale.initial);
        scale.growth = given.number("growth").value_or(scale.growth);
        scale.backoff = given.number("backoff").value_or(scale.backoff);
        scale.interval = given.integer("interval", 1).value_or(scale.interval);
        scale.least = given.number("least").value_or(scale.least);
        scale.most = given.number("most").value_or(scale.most);
        if (!(scale.growth >= 1)) given.wrong("growth", "1 or more");
        if (!(scale.backoff > 0 && scale.backoff < 1)) given.wrong("backoff", "a number between 0 and 1");
        if (!(scale.least >= 0x1p-126)) given.wrong("least", "a number of at least 2^-126, which f32 has");
        if (!(scale.most <= 0x1p127)) given.wrong("most", "a number of at most 2^127, which f32 has");
        if (!(scale.initial >= scale.least && scale.initial <= scale.most))
            given.wrong("initial", fmt::format("a number from least = {} to most = {}", scale.least, scale.most));
        given.finish();
    }
    lua_pop(L, 1);
    return wanted ? std::optional(scale) : std::nullopt;
}

void push_loss_scale(lua_State* L, const std::shared_ptr<Tape>& tape) {
    if (!tape->loss_scale) return lua_pushnil(L);
    const LossScale& scale = *tape->loss_scale;
    lua_createtable(L, 0, 8);
    const auto state = [&](const char* field, const char* name) {
        push_symbol(L, tape, *tape->program->find(name));
        lua_setfield(L, -2, field);
    };
    const auto number = [&](const char* name, double value) {
        lua_pushnumber(L, value);
        lua_setfield(L, -2, name);
    };
    state("scale", "loss_scale");
    state("good", "loss_scale.good");
    state("steps", "loss_scale.steps");
    number("growth", scale.growth);
    number("backoff", scale.backoff);
    number("interval", static_cast<double>(scale.interval));
    number("least", scale.least);
    number("most", scale.most);
}

}  // namespace orrery::lua
