#include "lua/record/options.h"

#include <fmt/format.h>

#include <memory>
#include <utility>

namespace orrery::lua {

void fill_config(lua_State* L, int index, Config& config, const Origin& origin) {
    index = lua_absindex(L, index);
    push_sorted_keys(L, index);
    const int keys = lua_gettop(L);
    for (lua_Integer i = 1; lua_rawgeti(L, keys, i) != LUA_TNIL; ++i) {
        if (lua_type(L, -1) != LUA_TSTRING)
            fail(L, fmt::format("{}: options must have names, found {} as a key", config.path(), type_text(L, -1)));
        const std::string key = check_text(L, -1);
        lua_rawget(L, index);
        ConfigValue value;
        value.origin = origin;
        switch (lua_type(L, -1)) {
            case LUA_TBOOLEAN: value.data = static_cast<bool>(lua_toboolean(L, -1)); break;
            case LUA_TNUMBER:
                if (lua_isinteger(L, -1))
                    value.data = static_cast<int64_t>(lua_tointeger(L, -1));
                else
                    value.data = static_cast<double>(lua_tonumber(L, -1));
                break;
            case LUA_TSTRING: value.data = check_text(L, -1); break;
            case LUA_TTABLE: {
                if (lua_rawlen(L, -1) > 0) {
                    ConfigValue::List list;
                    for (lua_Integer k = 1; lua_rawgeti(L, -1, k) != LUA_TNIL; ++k) {
                        if (lua_isinteger(L, -1))
                            list.push_back({static_cast<int64_t>(lua_tointeger(L, -1)), origin, false});
                        else if (lua_type(L, -1) == LUA_TNUMBER)
                            list.push_back({lua_tonumber(L, -1), origin, false});
                        else
                            list.push_back({check_text(L, -1), origin, false});
                        lua_pop(L, 1);
                    }
                    lua_pop(L, 1);
                    value.data = std::move(list);
                } else {
                    auto below = std::make_shared<Config>(config.path() + "." + key, origin);
                    fill_config(L, -1, *below, origin);
                    value.data = std::move(below);
                }
                break;
            }
            default:
                fail(L, fmt::format("{}: {} is {}, expected a number, a text, true, false or a table", config.path(),
                                    key, type_text(L, -1)));
        }
        config.set(key, std::move(value));
        lua_pop(L, 1);
    }
    lua_settop(L, keys - 1);
}

}  // namespace orrery::lua
