// Expands collective algorithms to tables. An algorithm is a Lua function from the number of ranks to moves of chunks.
#include <fmt/format.h>

#include "base/text.h"
#include "lua/fields.h"
#include "lua/state.h"

namespace orrery::lua {

template <>
struct Class<ChunkMove> {
    static constexpr const char* name = "orrery.chunk_move";
    static constexpr const char* what = "a move: collective.copy(...) or collective.reduce(...)";
};

namespace {

int small_integer(lua_State* L, int index) {
    const int64_t value = check_integer(L, index);
    if (value < INT32_MIN || value > INT32_MAX) expected(L, index, "a chunk or rank");
    return static_cast<int>(value);
}

template <ChunkMove::Kind kind>
int make_move(lua_State* L) {
    ChunkMove move;
    move.kind = kind;
    move.chunk = small_integer(L, 1);
    move.from = small_integer(L, 2);
    move.to = small_integer(L, 3);
    move.origin = where(L);
    push_object(L, std::move(move));
    return 1;
}

int move_text(lua_State* L) {
    const ChunkMove& m = check<ChunkMove>(L, 1);
    push(L, fmt::format("{} of chunk {} from rank {} to rank {} ({})",
                        m.kind == ChunkMove::Kind::copy ? "copy" : "reduce", m.chunk, m.from, m.to, m.origin.text()));
    return 1;
}

constexpr Opcode made_of_chunks[] = {Opcode::all_reduce, Opcode::all_gather, Opcode::reduce_scatter};

/// Pops the function of an algorithm, calls it for `choice.members` ranks, and returns its table.
ChunkTable expand(lua_State* L, const CollectiveChoice& choice, Opcode collective) {
    const std::string title = fmt::format("collective {}.{}", choice.name, name_of(collective));
    if (!lua_isfunction(L, -1))
        throw Error(choice.asked,
                    fmt::format("{} is {}, expected a function of the number of ranks", title, type_text(L, -1)));
    lua_Debug frame;
    lua_pushvalue(L, -1);
    lua_getinfo(L, ">S", &frame);
    ChunkTable table;
    table.name = choice.name;
    table.collective = collective;
    table.members = static_cast<int>(choice.members);
    table.asked = choice.asked;
    table.origin = {"", frame.source[0] == '@' ? frame.source + 1 : choice.asked.file, frame.linedefined, 0};
    lua_pushinteger(L, choice.members);
    lua_call(L, 1, 1);
    const auto wrong = [&](const std::string& why) { throw Error(table.origin, title + ": " + why); };
    if (!lua_istable(L, -1)) wrong("returned " + type_text(L, -1) + ", expected { chunks = n, steps = {...} }");
    const int result = lua_gettop(L);
    Fields fields(L, result, title);
    const int64_t chunks = fields.integer("chunks", 1).value_or(table.members);
    if (chunks > INT32_MAX) wrong("too many chunks");
    table.chunks = static_cast<int>(chunks);
    fields.push_field("steps");
    if (!lua_istable(L, -1)) wrong("steps is " + type_text(L, -1) + ", expected a list of lists of moves");
    fields.finish();
    const int steps = lua_gettop(L);
    int number = 0;
    for (lua_Integer s = 1; lua_rawgeti(L, steps, s) != LUA_TNIL; ++s) {
        if (!lua_istable(L, -1)) wrong(fmt::format("steps[{}] is {}, expected a list of moves", s, type_text(L, -1)));
        const int step = lua_gettop(L);
        for (lua_Integer i = 1; lua_rawgeti(L, step, i) != LUA_TNIL; ++i) {
            const ChunkMove* move = test<ChunkMove>(L, -1);
            if (!move)
                wrong(fmt::format("steps[{}][{}] is {}, expected {}", s, i, type_text(L, -1), Class<ChunkMove>::what));
            table.moves.push_back(*move);
            table.moves.back().step = number;
            lua_pop(L, 1);
        }
        number += lua_rawlen(L, step) > 0;
        lua_settop(L, steps);
    }
    lua_settop(L, result - 1);
    return table;
}

/// Splits "ring.all_reduce" into module and collective. "ring" stands for all collectives of the module.
std::pair<std::string, std::string> one_of(const std::string& name) {
    for (const Opcode collective : made_of_chunks)
        if (name.ends_with("." + std::string(name_of(collective))))
            return {name.substr(0, name.size() - name_of(collective).size() - 1), std::string(name_of(collective))};
    return {name, ""};
}

/// native.expand_collectives(): makes the tables that [collectives] asks for and passes them to the host.
int expand_collectives(lua_State* L) {
    State& state = state_of(L);
    for (const CollectiveChoice& choice : state.host().collectives) {
        const auto [name, only] = one_of(choice.name);
        const bool own = state.finds(name);
        const std::string module = own ? name : "orrery.collectives." + name;
        if (!own && !state.finds(module))
            throw Error(choice.asked, fmt::format("collective {} not found: neither {}.lua next to the script nor "
                                                  "orrery/collectives/{}.lua in the library exists",
                                                  quote(name), name, name));
        state.require(module);
        if (!lua_istable(L, -1))
            throw Error(choice.asked, fmt::format("collective {}: the module returns {}, expected a table with "
                                                  "all_reduce, all_gather or reduce_scatter",
                                                  quote(choice.name), type_text(L, -1)));
        const int table = lua_gettop(L);
        Fields fields(L, table, "collective " + choice.name);
        std::vector<ChunkTable> tables;
        for (const Opcode collective : made_of_chunks) {
            if (!fields.has(name_of(collective)) || (!only.empty() && only != name_of(collective))) continue;
            fields.push_field(name_of(collective));
            tables.push_back(expand(L, choice, collective));
        }
        fields.finish();
        if (tables.empty())
            throw Error(choice.asked,
                        fmt::format("collective {} has no{}", quote(name),
                                    only.empty() ? "ne of all_reduce, all_gather, reduce_scatter" : " " + only));
        lua_settop(L, table - 1);
        const auto paused = state.pause();
        state.host().use_collectives(choice, std::move(tables));
    }
    return 0;
}

}  // namespace

void open_collectives(lua_State* L) {
    const luaL_Reg functions[] = {{"__tostring", guard<move_text>}, {nullptr, nullptr}};
    new_class<ChunkMove>(L, functions);
    lua_pop(L, 1);
    lua_pushcfunction(L, guard<make_move<ChunkMove::Kind::copy>>);
    lua_setfield(L, -2, "copy_chunk");
    lua_pushcfunction(L, guard<make_move<ChunkMove::Kind::reduce>>);
    lua_setfield(L, -2, "reduce_chunk");
    lua_pushcfunction(L, guard<expand_collectives>);
    lua_setfield(L, -2, "expand_collectives");
}

}  // namespace orrery::lua
