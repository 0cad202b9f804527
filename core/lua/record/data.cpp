// o.data: where a program's inputs come from. Nothing is read here but shapes; the session reads.
#include "lua/record/data.h"

#include <fmt/format.h>

#include "base/text.h"
#include "lua/fields.h"
#include "lua/record/options.h"
#include "lua/state.h"

namespace orrery::lua {

namespace {

void push_array(lua_State* L, const DataArray& array, int64_t batch) {
    lua_createtable(L, 0, 3);
    push(L, array.name);
    lua_setfield(L, -2, "name");
    push(L, std::string(name_of(array.dtype)));
    lua_setfield(L, -2, "dtype");
    std::vector<std::pair<std::string, int64_t>> dims = {{"batch", batch}};
    dims.insert(dims.end(), array.dims.begin(), array.dims.end());
    lua_createtable(L, static_cast<int>(dims.size()), 0);
    for (size_t i = 0; i < dims.size(); ++i) {
        lua_createtable(L, 2, 0);
        push(L, dims[i].first);
        lua_rawseti(L, -2, 1);
        lua_pushinteger(L, dims[i].second);
        lua_rawseti(L, -2, 2);
        lua_rawseti(L, -2, static_cast<lua_Integer>(i + 1));
    }
    lua_setfield(L, -2, "shape");
}

int64_t vocabulary(lua_State* L, const DataSource& source) {
    try {
        return source.vocabulary();
    } catch (const Error& error) {
        fail(L, error.what());  // with the line that asks
    }
}

int index(lua_State* L) {
    const DataSpec& spec = check<Data>(L, 1).spec;
    const std::vector<DataArray>& arrays = spec.source->arrays();
    const std::string key = check_text(L, 2);
    if (key == "signature") {
        lua_createtable(L, static_cast<int>(arrays.size()), 0);
        for (size_t i = 0; i < arrays.size(); ++i) {
            push_array(L, arrays[i], spec.sequences_per_step);
            lua_rawseti(L, -2, static_cast<lua_Integer>(i + 1));
        }
        return 1;
    }
    if (key == "batch") return lua_pushinteger(L, spec.sequences_per_step), 1;
    if (key == "vocab") return lua_pushinteger(L, vocabulary(L, *spec.source)), 1;
    if (key == "path") return push(L, spec.source->path()), 1;
    std::string known = "signature, batch, vocab, path";
    for (const DataArray& array : arrays)
        for (const auto& [name, size] : array.dims) {
            if (name == key) return lua_pushinteger(L, size), 1;
            if (known.find(", " + name) == std::string::npos) known += ", " + name;
        }
    fail(L, fmt::format("data has no field {}\n  known: {}", quote(key), known));
}

// A source that is not complete describes shapes only: `orrery check` proves a plan for a cluster without its data.

/// An option of the call, else a key of the configuration, else an error that names both.
int64_t required(lua_State* L, std::optional<int64_t> given, const std::string& function, const char* option,
                 const char* table, const char* key) {
    const int64_t value = given.value_or(state_of(L).host().config().table(table).integer(key, 0));
    if (value > 0) return value;
    fail(L, fmt::format("{}: {} is missing\n  give it here or as {}.{} in the configuration", function, option, table,
                        key));
}

/// A value out of its bounds: blames the option of the call, or the configuration that it came from.
[[noreturn]] void out_of_bounds(Fields& fields, Config& config, const char* key, double found, const char* expected) {
    if (fields.has(key)) fields.wrong(key, expected);
    throw Error(config.where(key), fmt::format("data.{} is {}, expected {}", key, found, expected));
}

/// native.data(name, options) -> the data plugin of that name, not opened.
int make(lua_State* L) {
    const std::string name = check_text(L, 1), function = "o.data." + name;
    Config& root = state_of(L).host().config();
    Config& config = root.table("data");
    Fields fields(L, 2, function);
    DataSpec spec;
    spec.origin = where(L);
    Config options(function, spec.origin);
    if (!lua_isnoneornil(L, 2)) fill_config(L, 2, options, spec.origin);
    spec.sequences_per_step = required(L, fields.integer("batch", 1), function, "batch", "train", "sequences_per_step");
    spec.validation = fields.number("validation").value_or(config.number("validation", 0.05));
    if (!(spec.validation >= 0 && spec.validation <= 0.5))
        out_of_bounds(fields, config, "validation", spec.validation, "a share from 0 to 0.5");
    spec.seed = static_cast<uint64_t>(fields.integer("seed", 0).value_or(root.table("run").integer("seed", 1)));
    for (const char* mine : {"batch", "validation", "seed"})
        if (ConfigValue* value = options.find(mine)) value->used = true;
    options.fall_back_on(config);
    spec.source = state_of(L).host().make_data(name, options, spec.origin);
    options.reject_unused();
    push_object(L, Data{std::move(spec)});
    return 1;
}

}  // namespace

void open_data(lua_State* L) {
    const luaL_Reg functions[] = {{"__index", guard<index>}, {nullptr, nullptr}};
    new_class<Data>(L, functions);
    lua_pop(L, 1);
    lua_pushcfunction(L, guard<make>);
    lua_setfield(L, -2, "data");
}

}  // namespace orrery::lua
