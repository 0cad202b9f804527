#include <fmt/format.h>

#include <algorithm>

#include "base/suggest.h"
#include "base/text.h"
#include "config/schema.h"
#include "lua/state.h"

namespace orrery::lua {

namespace {

/// The Lua object `o.config` or one of its tables, which are read-only. The host owns the Config.
struct ConfigView {
    Config* config;
};

}  // namespace

template <>
struct Class<ConfigView> {
    static constexpr const char* name = "orrery.config";
    static constexpr const char* what = "a table of the configuration";
};

namespace {

void push_value(lua_State* L, const ConfigValue& value) {
    if (const bool* flag = std::get_if<bool>(&value.data))
        lua_pushboolean(L, *flag);
    else if (const int64_t* integer = std::get_if<int64_t>(&value.data))
        lua_pushinteger(L, *integer);
    else if (const double* number = std::get_if<double>(&value.data))
        lua_pushnumber(L, *number);
    else if (const std::string* text = std::get_if<std::string>(&value.data))
        push(L, *text);
    else if (const auto* list = std::get_if<ConfigValue::List>(&value.data)) {
        lua_newtable(L);
        for (size_t i = 0; i < list->size(); ++i) {
            push_value(L, (*list)[i]);
            lua_rawseti(L, -2, static_cast<lua_Integer>(i + 1));
        }
    } else {
        push_object(L, ConfigView{std::get<std::shared_ptr<Config>>(value.data).get()});
    }
}

/// Records that the script has read a configuration key, since a value in the script may depend on the key. Reads by
/// the library's own modules do not count, since the library reports the keys that it uses.
void see_read(lua_State* L, const Config& config, const std::string& key) {
    lua_Debug reader;
    if (!lua_getstack(L, 1, &reader) || lua_getinfo(L, "S", &reader) == 0) return;
    if (reader.source[0] == '@' && is_plumbing(reader.source + 1)) return;
    state_of(L).taken.insert(fmt::format("{}.{}", config.path(), key));
}

int index(lua_State* L) {
    Config& config = *check<ConfigView>(L, 1).config;
    const std::string key = check_text(L, 2);
    see_read(L, config, key);
    if (ConfigValue* value = config.find(key)) {
        value->used = true;
        push_value(L, *value);
        return 1;
    }
    const std::string path = config.path().empty() ? key : config.path() + "." + key;
    if (is_open_table(config.path()) || find_schema(config.path(), key)) {
        lua_pushnil(L);  // the key is known but not set
    } else if (is_known_table(path)) {
        push_object(L, ConfigView{&config.table(key)});
    } else {
        const std::string table = config.path().empty() ? "" : fmt::format(" in [{}]", config.path());
        fail(L, fmt::format("unknown configuration key {}{}{}\n  declare the script's own options with o.options",
                            quote(key), table, choices("known", key, schema_names(config.path()))));
    }
    return 1;
}

int refuse_write(lua_State* L) {
    fail(L, fmt::format("o.config is read-only: set {} in the TOML file or with --set", type_text(L, 2)));
}

/// Iterator that pairs() uses on a configuration table. Upvalues: the ConfigView, the number of visited keys.
int next_entry(lua_State* L) {
    Config& config = *check<ConfigView>(L, lua_upvalueindex(1)).config;
    const auto at = static_cast<size_t>(lua_tointeger(L, lua_upvalueindex(2)));
    if (at >= config.items().size()) return 0;
    lua_pushinteger(L, static_cast<lua_Integer>(at + 1));
    lua_replace(L, lua_upvalueindex(2));
    const auto& [key, value] = config.items()[at];
    config.find(key)->used = true;
    see_read(L, config, key);
    push(L, key);
    push_value(L, value);
    return 2;
}

int entries(lua_State* L) {
    check<ConfigView>(L, 1);
    lua_pushvalue(L, 1);
    lua_pushinteger(L, 0);
    lua_pushcclosure(L, guard<next_entry>, 2);
    return 1;
}

// ---- o.options: the options that a script declares

std::string shown(lua_State* L, int index) {
    if (lua_type(L, index) == LUA_TSTRING) return quote(check_text(L, index));
    std::string text = luaL_tolstring(L, index, nullptr);
    lua_pop(L, 1);
    return text;
}

/// Replaces the default on top of the stack by the value of option `key` in the configuration's [script], if any.
void override_option(lua_State* L, Config& script, const std::string& key) {
    if (!script.has(key)) return;
    const int type = lua_type(L, -1);
    const bool whole = lua_isinteger(L, -1);
    lua_pop(L, 1);
    if (type == LUA_TBOOLEAN)
        lua_pushboolean(L, script.flag(key, false));
    else if (type == LUA_TSTRING)
        push(L, script.text(key, ""));
    else if (whole)
        lua_pushinteger(L, script.integer(key, 0));
    else
        lua_pushnumber(L, script.number(key, 0));
}

/// Reads a list of texts, `one_of` or `list_of`, from an option's table on top of the stack; it may have none.
std::vector<std::string> read_valid(lua_State* L, const std::string& option, const char* key) {
    std::vector<std::string> valid;
    const int top = lua_gettop(L), type = lua_getfield(L, top, key);
    if (type == LUA_TTABLE)
        for (lua_Integer i = 1; lua_rawgeti(L, top + 1, i) == LUA_TSTRING; ++i) {
            valid.push_back(check_text(L, -1));
            lua_pop(L, 1);
        }
    if (type != LUA_TNIL && (valid.empty() || !lua_isnil(L, -1)))
        fail(L, fmt::format("o.options: {} of {} must be a list of texts, as {{ \"a\", \"b\" }}", key, option));
    lua_settop(L, top);
    return valid;
}

/// Throws Error if the option has another value than those that it lists.
void check_valid(lua_State* L, Config& script, const Host::Option& option) {
    if (option.one_of.empty() || std::ranges::find(option.one_of, option.value) != option.one_of.end()) return;
    std::string valid;
    for (const std::string& value : option.one_of)
        valid += (valid.empty() ? "" : value == option.one_of.back() ? " or " : ", ") + value;
    const std::string text = fmt::format("script.{} = {}: expected {}", option.key, option.value, valid);
    if (script.has(option.key)) throw Error(script.where(option.key), text);
    fail(L, text);
}

/// Throws Error if a name in the option's list ("a,b") is not one of the valid names.
void check_list(lua_State* L, Config& script, const Host::Option& option, const std::vector<std::string>& valid) {
    for (const std::string& piece : split(option.value, ',')) {
        const std::string name(trim(piece));
        if (valid.empty() || std::ranges::find(valid, name) != valid.end()) continue;
        const std::string text = fmt::format("script.{} = {}: {} is not one of the valid names{}", option.key,
                                             option.value, quote(name), choices("valid names", name, valid));
        if (script.has(option.key)) throw Error(script.where(option.key), text);
        fail(L, text);
    }
}

/// o.options { steps = 300, lr = { 6e-4, "peak learning rate" } } -> { steps = , lr = }, with values from [script]
int options(lua_State* L) {
    State& state = state_of(L);
    check_table(L, 1, "a table of options");
    if (state.options_declared) fail(L, "o.options is called twice; declare all options in one call");
    state.options_declared = true;
    Config& script = state.host().config().table("script");
    lua_settop(L, 1);
    lua_newtable(L);
    push_sorted_keys(L, 1);
    std::vector<Host::Option> declared;
    std::vector<std::string> names;
    for (lua_Integer i = 1; lua_rawgeti(L, 3, i) != LUA_TNIL; ++i) {
        if (lua_type(L, 4) != LUA_TSTRING) fail(L, "o.options: options must have names; write for example steps = 300");
        Host::Option option{check_text(L, 4), "", "", "", {}};
        std::vector<std::string> names_of_list;
        if (find_schema("script", option.key))
            fail(L, fmt::format("o.options: script.{} is a reserved key of orrery\n  give the option another name",
                                option.key));
        lua_rawget(L, 1);
        if (lua_istable(L, 4)) {
            lua_rawgeti(L, 4, 2);
            if (lua_type(L, 5) == LUA_TSTRING) option.help = check_text(L, 5);
            lua_pop(L, 1);
            option.one_of = read_valid(L, option.key, "one_of");
            names_of_list = read_valid(L, option.key, "list_of");
            lua_rawgeti(L, 4, 1);
            lua_replace(L, 4);
        }
        const int type = lua_type(L, 4);
        if (type != LUA_TBOOLEAN && type != LUA_TNUMBER && type != LUA_TSTRING)
            fail(L, fmt::format("o.options: the default of {} is {}, expected a number, a text, true or false\n  "
                                "write {} = default or {} = {{ default, \"help\" }}",
                                option.key, type_text(L, 4), option.key, option.key));
        option.fallback = shown(L, 4);
        override_option(L, script, option.key);
        option.value = luaL_tolstring(L, 4, nullptr);
        lua_pop(L, 1);
        check_valid(L, script, option);
        check_list(L, script, option, names_of_list);
        lua_setfield(L, 2, option.key.c_str());
        names.push_back(option.key);
        declared.push_back(std::move(option));
    }
    state.host().declare_options(declared);
    for (const auto& [key, value] : script.items())
        if (std::ranges::find(names, key) == names.end() && !find_schema("script", key))
            throw Error(value.origin,
                        fmt::format("the script has no option {}{}", quote(key), choices("its options", key, names)));
    lua_settop(L, 2);
    return 1;
}

}  // namespace

void check_script_table(State& state) {
    if (state.options_declared) return;
    Config& script = state.host().config().table("script");
    for (const auto& [key, value] : script.items())
        if (!find_schema("script", key))
            throw Error(value.origin, fmt::format("script.{} is set, but the script declares no options\n  declare it "
                                                  "with o.options {{ {} = default }}",
                                                  key, key));
}

void open_config(lua_State* L) {
    const luaL_Reg functions[] = {{"__index", guard<index>},
                                  {"__newindex", guard<refuse_write>},
                                  {"__pairs", guard<entries>},
                                  {nullptr, nullptr}};
    new_class<ConfigView>(L, functions);
    lua_pop(L, 1);
    push_object(L, ConfigView{&state_of(L).host().config()});
    lua_setfield(L, -2, "config");
    lua_pushcfunction(L, guard<options>);
    lua_setfield(L, -2, "options");
}

}  // namespace orrery::lua
