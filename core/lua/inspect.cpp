// Lists ops and methods for readers, and for the test that keeps scripts/cmake/meta.lua complete.
#include <fmt/format.h>

#include "base/text.h"
#include "ir/op.h"
#include "lua/record/tape.h"
#include "lua/state.h"

namespace orrery::lua {

namespace {

std::string_view plain_name(std::string_view operand) { return operand.substr(0, operand.find_first_of("?.")); }

/// native.ops() -> { matmul = { operands = { "a", "b", "bias" }, attributes = { "trans_a", ... } }, ... }
int ops(lua_State* L) {
    lua_newtable(L);
    for (const OpDef* def : own_ops()) {
        if (def->collective) continue;
        std::vector<std::string> operands, attributes;
        for (const std::string_view operand : def->operands) operands.emplace_back(plain_name(operand));
        for (const AttributeDef& attribute : def->attributes) attributes.emplace_back(attribute.name);
        lua_createtable(L, 0, 2);
        push(L, operands);
        lua_setfield(L, -2, "operands");
        push(L, attributes);
        lua_setfield(L, -2, "attributes");
        lua_setfield(L, -2, std::string(def->name).c_str());
    }
    return 1;
}

/// native.methods(class) -> sorted names of the methods of a class: "orrery.value", "orrery.program", "orrery.run", ...
int methods(lua_State* L) {
    const std::string name = check_text(L, 1);
    if (luaL_getmetatable(L, name.c_str()) != LUA_TTABLE) bad_argument(L, 1, fmt::format("no class {}", quote(name)));
    if (lua_getfield(L, -1, "methods") != LUA_TTABLE) lua_getfield(L, -2, "__index");
    if (lua_istable(L, -1))
        push_sorted_keys(L, -1);
    else
        lua_newtable(L);
    return 1;
}

}  // namespace

void open_inspect(lua_State* L) {
    lua_pushcfunction(L, guard<ops>);
    lua_setfield(L, -2, "ops");
    lua_pushcfunction(L, guard<methods>);
    lua_setfield(L, -2, "methods");
}

}  // namespace orrery::lua
