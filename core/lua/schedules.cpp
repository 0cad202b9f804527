#include "lua/schedules.h"

#include <fmt/format.h>

#include <optional>

#include "base/text.h"
#include "lua/state.h"

namespace orrery::lua {

namespace {

/// Returns the script line that defines schedule `name`. The schedule's function is on top of the stack.
Origin origin_of(lua_State* L, const std::string& name) {
    lua_Debug frame;
    lua_pushvalue(L, -1);
    lua_getinfo(L, ">S", &frame);
    return {"schedule " + name, *frame.source == '@' ? frame.source + 1 : frame.short_src, frame.linedefined, 0};
}

/// The last line of an error: "pipeline, gpt.lua:69: asked for: 2 ranks over pp, 3 micro-batches, 1 chunk a rank".
std::string asked(const Pipeline& pipeline, int64_t ranks, int64_t microbatches) {
    const std::string who = pipeline.origin.text();
    return fmt::format("\n  {}requested: {}{}, {}, {} a rank", who.empty() ? "" : who + ": ", plural(ranks, "rank"),
                       pipeline.axis.empty() ? "" : " over " + pipeline.axis, plural(microbatches, "micro-batch"),
                       plural(pipeline.chunks, "chunk"));
}

/// Reads a pipeline rank's order of forwards and backwards ("F0 F1 B0") from a text or list on top of the stack.
RankSchedule order_of(lua_State* L, const Schedule& schedule, int64_t rank) {
    const auto refuse = [&](const std::string& what) {
        throw Error(schedule.origin, fmt::format("returned {} as the order of pipeline rank {}; expected a text such "
                                                 "as \"F0 F1 B0\" or a list of such texts",
                                                 what, rank));
    };
    std::string text;
    if (lua_type(L, -1) == LUA_TSTRING) {
        text = check_text(L, -1);
    } else if (lua_istable(L, -1)) {
        for (lua_Integer i = 1; lua_rawgeti(L, -1, i) != LUA_TNIL; lua_pop(L, 1), ++i) {
            if (lua_type(L, -1) != LUA_TSTRING) refuse(fmt::format("{} as part {}", type_text(L, -1), i));
            text += check_text(L, -1) + " ";
        }
        lua_pop(L, 1);
    } else {
        refuse(type_text(L, -1));
    }
    try {
        return RankSchedule::parse(text);
    } catch (const Error& error) {
        throw Error(schedule.origin, fmt::format("pipeline rank {}: {}", rank, error.what()));
    }
}

/// Reads the stages of each pipeline rank from the list of lists at `index`.
void read_stages(lua_State* L, int index, Schedule& schedule) {
    if (lua_isnoneornil(L, index)) return;
    const auto refuse = [&] {
        throw Error(schedule.origin, fmt::format("returned invalid stages: expected a list of {} lists of numbers, one "
                                                 "for each pipeline rank",
                                                 schedule.ranks.size()));
    };
    if (!lua_istable(L, index)) refuse();
    for (size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
        auto& own = schedule.stages.emplace_back();
        if (lua_rawgeti(L, index, static_cast<lua_Integer>(rank + 1)) != LUA_TTABLE) refuse();
        for (lua_Integer i = 1; lua_rawgeti(L, -1, i) != LUA_TNIL; lua_pop(L, 1), ++i) {
            if (!lua_isinteger(L, -1)) refuse();
            own.push_back(static_cast<int>(lua_tointeger(L, -1)));
        }
        lua_pop(L, 2);
    }
}

std::string shipped(const std::string& name) { return "orrery.schedules." + name; }

/// Calls the Lua function below its arguments on the stack. Errors start with the name of the schedule.
void call(lua_State* L, int arguments, int results, const std::string& name, const std::string& behind) {
    if (lua_pcall(L, arguments, results, 0) == LUA_OK) return;
    throw Error(fmt::format("schedule {}: {}{}", name, luaL_tolstring(L, -1, nullptr), behind));
}

/// The numbers of chunks (stages per rank) for which a schedule works.
struct Chunks {
    int least = 1;
    bool more = true;  ///< false: only `least`
};

/// Reads "chunks" or "min_chunks" of the schedule's table on top of the stack.
std::optional<Chunks> read_chunks(lua_State* L) {
    for (const char* key : {"chunks", "min_chunks"}) {
        lua_getfield(L, -1, key);
        const int64_t least = lua_isinteger(L, -1) ? lua_tointeger(L, -1) : 0;
        lua_pop(L, 1);
        if (least >= 1 && least <= 1024) return Chunks{static_cast<int>(least), key == std::string_view("min_chunks")};
    }
    return std::nullopt;
}

/// Pushes the Lua function of schedule `name`. Returns the numbers of chunks for which it works.
Chunks push_function(lua_State* L, const std::string& name, const Origin& origin) {
    const State& state = state_of(L);
    const std::string module = state.finds(name) ? name : shipped(name);
    if (!state.finds(module))
        throw Error(origin, fmt::format("schedule '{}' not found: neither {}.lua next to the script nor {}.lua in "
                                        "the library exists",
                                        name, name, join(split(shipped(name), '.'), "/")));
    lua_getglobal(L, "require");
    push(L, module);
    call(L, 1, 1, name, "");
    if (lua_isfunction(L, -1)) return {};
    const auto refuse = [&](const std::string& what) {
        throw Error(
            {"schedule " + name, state.file_of(module), 0, 0},
            fmt::format("returns {}, expected a function (p, m, v), or {{ chunks = 2, order = function }} for a "
                        "fixed number of chunks, or {{ min_chunks = 2, order = function }} for a minimum",
                        what));
    };
    if (!lua_istable(L, -1)) refuse(type_text(L, -1));
    const auto chunks = read_chunks(L);
    if (!chunks) refuse("a table without chunks or min_chunks from 1 to 1024");
    lua_getfield(L, -1, "order");
    if (!lua_isfunction(L, -1)) refuse("a table whose order is " + type_text(L, -1));
    lua_remove(L, -2);
    return *chunks;
}

}  // namespace

Schedule make_schedule(lua_State* L, Pipeline& pipeline, int64_t ranks, int64_t microbatches) {
    const int top = lua_gettop(L);
    const Chunks needed = push_function(L, pipeline.schedule, pipeline.origin);
    Schedule schedule;
    schedule.name = pipeline.schedule;
    schedule.origin = origin_of(L, pipeline.schedule);
    if (pipeline.chunks == 0) pipeline.chunks = needed.least;
    if (pipeline.chunks < needed.least || (pipeline.chunks > needed.least && !needed.more))
        throw Error(
            schedule.origin,
            fmt::format("this schedule needs {} {} chunks a rank; remove the option chunks{}{}",
                        needed.more ? "at least" : "exactly", needed.least,
                        needed.more ? ", or choose another schedule" : "", asked(pipeline, ranks, microbatches)));
    for (const int64_t number : {ranks, microbatches, int64_t{pipeline.chunks}}) lua_pushinteger(L, number);
    call(L, 3, 2, schedule.name, asked(pipeline, ranks, microbatches));
    const int orders = lua_gettop(L) - 1;
    const bool list = lua_istable(L, orders);
    const int64_t count = list ? static_cast<int64_t>(lua_rawlen(L, orders)) : 0;
    if (count != ranks)
        throw Error(schedule.origin,
                    fmt::format("returned {}, expected a list of {} orders, one for each rank of the pipeline",
                                list ? plural(count, "order") : type_text(L, orders), ranks));
    for (int64_t rank = 0; rank < ranks; ++rank) {
        lua_rawgeti(L, orders, rank + 1);
        schedule.ranks.push_back(order_of(L, schedule, rank));
        lua_pop(L, 1);
    }
    read_stages(L, orders + 1, schedule);
    lua_settop(L, top);
    return schedule;
}

int chunks_needed(lua_State* L, const std::string& schedule, const std::string& axis) {
    State& state = state_of(L);
    if (state.host().mesh().size(axis) == 1 || (!state.finds(schedule) && !state.finds(shipped(schedule)))) return 1;
    const int top = lua_gettop(L);
    const int chunks = push_function(L, schedule, where(L)).least;
    lua_settop(L, top);
    return chunks;
}

}  // namespace orrery::lua
