#include "lua/schedules.h"

#include <fmt/format.h>

#include "base/text.h"
#include "lua/state.h"

namespace orrery::lua {

namespace {

/// Where the function on top of the stack begins.
Origin origin_of(lua_State* L, const std::string& name) {
    lua_Debug frame;
    lua_pushvalue(L, -1);
    lua_getinfo(L, ">S", &frame);
    return {"schedule " + name, *frame.source == '@' ? frame.source + 1 : frame.short_src, frame.linedefined, 0};
}

/// The order at the top of the stack.
RankSchedule order_of(lua_State* L, const Schedule& schedule, int64_t rank) {
    const auto refuse = [&](const std::string& what) {
        throw Error(schedule.origin, fmt::format("schedule '{}' returned {} as the order of pipeline rank {}; expected "
                                                 "a text such as \"F0 F1 B0\" or a list of such",
                                                 schedule.name, what, rank));
    };
    std::string text;
    if (lua_type(L, -1) == LUA_TSTRING) {
        text = check_text(L, -1);
    } else if (lua_istable(L, -1)) {
        for (lua_Integer i = 1; lua_rawgeti(L, -1, i) != LUA_TNIL; lua_pop(L, 1), ++i) {
            if (lua_type(L, -1) != LUA_TSTRING) refuse(type_text(L, -1));
            text += check_text(L, -1) + " ";
        }
        lua_pop(L, 1);
    } else {
        refuse(type_text(L, -1));
    }
    try {
        return RankSchedule::parse(text);
    } catch (const Error& error) {
        throw Error(schedule.origin,
                    fmt::format("schedule '{}', pipeline rank {}: {}", schedule.name, rank, error.what()));
    }
}

/// The list of lists at `index`: each rank's stages.
void read_stages(lua_State* L, int index, Schedule& schedule) {
    if (lua_isnoneornil(L, index)) return;
    const auto refuse = [&] {
        throw Error(schedule.origin,
                    fmt::format("schedule '{}' returned stages that are no list of {} lists of numbers", schedule.name,
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

}  // namespace

Schedule make_schedule(lua_State* L, const Pipeline& pipeline, int64_t ranks, int64_t microbatches) {
    State& state = state_of(L);
    const int top = lua_gettop(L);
    const std::string shipped = "orrery.schedules." + pipeline.schedule;
    const bool own = state.finds(pipeline.schedule);
    if (!own && !state.finds(shipped))
        throw Error(pipeline.origin,
                    fmt::format("no schedule '{}': there is neither {}.lua beside the script nor {}.lua in the library",
                                pipeline.schedule, pipeline.schedule, join(split(shipped, '.'), "/")));
    state.require(own ? pipeline.schedule : shipped);
    if (!lua_isfunction(L, -1))
        throw Error(pipeline.origin, fmt::format("schedule '{}' is {}; its file returns a function (p, m, v)",
                                                 pipeline.schedule, type_text(L, -1)));
    Schedule schedule;
    schedule.name = pipeline.schedule;
    schedule.origin = origin_of(L, pipeline.schedule);
    lua_pushinteger(L, ranks);
    lua_pushinteger(L, microbatches);
    lua_pushinteger(L, pipeline.chunks);
    if (lua_pcall(L, 3, 2, 0) != LUA_OK) {
        const std::string why = luaL_tolstring(L, -1, nullptr);
        throw Error(pipeline.origin,
                    fmt::format("schedule '{}' of {} ranks over {}, {} micro-batches and {} chunks: {}",
                                pipeline.schedule, ranks, pipeline.axis, microbatches, pipeline.chunks, why));
    }
    const int orders = lua_gettop(L) - 1;
    const int64_t count = lua_istable(L, orders) ? static_cast<int64_t>(lua_rawlen(L, orders)) : 0;
    if (count != ranks)
        throw Error(schedule.origin,
                    fmt::format("schedule '{}' returned {} orders, expected a list of {}: one for each "
                                "rank of the pipeline",
                                schedule.name, count, ranks));
    for (int64_t rank = 0; rank < ranks; ++rank) {
        lua_rawgeti(L, orders, rank + 1);
        schedule.ranks.push_back(order_of(L, schedule, rank));
        lua_pop(L, 1);
    }
    read_stages(L, orders + 1, schedule);
    lua_settop(L, top);
    return schedule;
}

}  // namespace orrery::lua
