// Implements o.data, the sources of a program's inputs. Only shapes are read here; the session reads the data.
#include "lua/record/data.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/text.h"
#include "lua/fields.h"
#include "lua/record/data_keys.h"
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
        fail(L, error.what());
    }
}

/// The arrays of a source, and documents, positions and places of its rows, which the host fills where the source has
/// none. Throws Error if no array has a dim `seq`.
std::vector<DataArray> placed(lua_State* L, const DataSource& source) {
    std::vector<DataArray> arrays = source.arrays();
    const DataArray* row = nullptr;
    for (const DataArray& array : source.arrays())
        if (!row && !array.dims.empty() && array.dims[0].first == "seq") row = &array;
    if (!row)
        fail(L, fmt::format("data.placed: no array of {} has seq as its first dim after batch\n  use data.signature",
                            source.place()));
    for (const char* name : {"documents", "positions", "places"})
        if (std::ranges::find(arrays, name, &DataArray::name) == arrays.end())
            arrays.push_back({name, DType::i32, {row->dims[0]}});
    return arrays;
}

int index_data(lua_State* L) {
    const Data& data = check<Data>(L, 1);
    const DataSpec& spec = data.spec;
    const std::string key = check_text(L, 2);
    const std::vector<DataArray> arrays = key == "placed" ? placed(L, *spec.source) : spec.source->arrays();
    if (key == "signature" || key == "placed") {
        give_keys(L, data);
        lua_createtable(L, static_cast<int>(arrays.size()), 0);
        for (size_t i = 0; i < arrays.size(); ++i) {
            push_array(L, arrays[i], batch_of(data));
            lua_rawseti(L, -2, static_cast<lua_Integer>(i + 1));
        }
        return 1;
    }
    if (key == "batch") return lua_pushinteger(L, batch_of(data)), 1;
    if (key == "vocab") return lua_pushinteger(L, vocabulary(L, *spec.source)), 1;
    if (key == "path") return push(L, spec.source->path()), 1;
    std::string known = "signature, placed, batch, vocab, path";
    for (const DataArray& array : arrays)
        for (const auto& [name, size] : array.dims) {
            if (name == key) return lua_pushinteger(L, size), 1;
            if (known.find(", " + name) == std::string::npos) known += ", " + name;
        }
    fail(L, fmt::format("data has no field {}\n  known: {}", quote(key), known));
}

/// Throws Error for a value out of its bounds, naming the call's option or the configuration key that set the value.
[[noreturn]] void out_of_bounds(Fields& fields, Config& config, const char* key, double found, const char* expected) {
    if (fields.has(key)) fields.wrong(key, expected);
    throw Error(config.where(key), fmt::format("data.{} is {}, expected {}", key, found, expected));
}

/// Pushes the options of a call for its data plugin: all named ones, except a `validation` that is a data source.
void push_options(lua_State* L, int index) {
    lua_newtable(L);
    lua_pushnil(L);
    while (lua_next(L, index) != 0) {
        const bool of_core = lua_isuserdata(L, -1) && lua_type(L, -2) == LUA_TSTRING &&
                             std::string_view(lua_tostring(L, -2)) == "validation";
        if (lua_type(L, -2) == LUA_TSTRING && !of_core) {
            lua_pushvalue(L, -2);
            lua_insert(L, -2);
            lua_rawset(L, -4);
        } else {
            lua_pop(L, 1);
        }
    }
}

/// Reads the list of a mixture: { { source, weight }, ... }. `place`: origin of the weights, in the configuration or
/// the call. `sources` receives the Data of each source.
std::vector<DataPart> parts_of(lua_State* L, int index, const std::string& function, const Origin& place,
                               std::vector<const Data*>& sources) {
    std::vector<DataPart> parts;
    for (lua_Integer i = 1; lua_rawgeti(L, index, i) != LUA_TNIL; ++i) {
        const std::string which = fmt::format("{}: source {}", function, i);
        if (!lua_istable(L, -1))
            throw Error(place, fmt::format("{} is {}, expected {{ source, weight }}", which, type_text(L, -1)));
        lua_rawgeti(L, -1, 1);
        const Data* const of = test<Data>(L, -1);
        if (!of)
            throw Error(place, fmt::format("{} begins with {}, expected {{ source, weight }} with a source from "
                                           "o.data.NAME",
                                           which, type_text(L, -1)));
        lua_rawgeti(L, -2, 2);
        if (lua_type(L, -1) != LUA_TNUMBER)
            throw Error(place, fmt::format("{} has {} for its weight, expected a number", which, type_text(L, -1)));
        if (!of->own.empty())
            throw Error(of->spec.origin, fmt::format("{} ({}) sets {} itself\n  set it in {} instead, which draws "
                                                     "the samples of all sources",
                                                     which, of->function, join(of->own, " and "), function));
        parts.push_back({of->spec.source, lua_tonumber(L, -1), place});
        sources.push_back(of);
        lua_pop(L, 3);
    }
    lua_pop(L, 1);
    return parts;
}

/// Reads the data for evaluation: a share of the samples, or another data source, from the call or at stack index 4.
void read_validation(lua_State* L, Fields& fields, Config& config, Data& data) {
    DataSpec& spec = data.spec;
    fields.push_field("validation");
    const Data* own = test<Data>(L, -1);
    const bool called = own != nullptr;
    if (!own && lua_isnil(L, -1)) own = test<Data>(L, 4);
    if (own) {
        if (own->spec.source->arrays() != spec.source->arrays())
            throw Error(spec.origin, fmt::format("arrays to evaluate on ({}) differ from arrays to train on ({})\n"
                                                 "  use data with the same names, types and dims for both",
                                                 own->spec.source->place(), spec.source->place()));
        spec.held_out = own->spec.source;
        spec.held_out_plugin = own->spec.plugin;
        spec.parts.insert(spec.parts.end(), own->spec.parts.begin(), own->spec.parts.end());
        spec.validation = 0;
        data.read.insert(own->read.begin(), own->read.end());
        if (called) give_held_out(data, 0.0, own->spec.source->path());
    }
    lua_pop(L, 1);
    if (own) return;
    if (const auto share = fields.number("validation")) give_held_out(data, *share, "");
    spec.validation = fields.number("validation").value_or(config.number("validation", 0));
    if (!(spec.validation >= 0 && spec.validation <= 0.5))
        out_of_bounds(fields, config, "validation", spec.validation, "a share from 0 to 0.5");
}

/// Adds all data sources from which samples are drawn to `spec`; inner sources of a nested mixture come first.
void add_parts(DataSpec& spec, const std::vector<DataPart>& parts, const std::vector<const Data*>& sources) {
    for (size_t i = 0; i < parts.size(); ++i) {
        if (parts[i].weight <= 0) continue;
        const DataSpec& part = sources[i]->spec;
        spec.parts.insert(spec.parts.end(), part.parts.begin(), part.parts.end());
        spec.parts.push_back({part.plugin, part.source});
    }
}

/// native.data(name, options [, place [, held_out]]) -> a source of the data plugin of that name, not opened. `place`:
/// the key of [data] that the list comes from; `held_out`: the configuration's data source for evaluation.
int make(lua_State* L) {
    const std::string name = check_text(L, 1);
    Data data;
    data.function = "o.data." + name;
    Config& root = state_of(L).host().config();
    Config& config = root.table("data");
    lua_settop(L, 4);
    if (lua_isnil(L, 2)) {
        lua_newtable(L);
        lua_replace(L, 2);
    }
    Fields fields(L, 2, data.function);
    DataSpec& spec = data.spec;
    spec.origin = where(L);
    const Origin place = lua_isstring(L, 3) ? config.where(check_text(L, 3)) : spec.origin;
    Config options(data.function, spec.origin);
    push_options(L, 2);
    fill_config(L, -1, options, spec.origin);
    lua_pop(L, 1);
    for (const char* mine : {"batch", "validation", "seed"}) {
        if (fields.has(mine)) data.own.emplace_back(mine);
        if (ConfigValue* value = options.find(mine)) value->used = true;
    }
    spec.sequences_per_step = fields.integer("batch", 1).value_or(root.table("train").integer("sequences_per_step", 0));
    spec.seed = static_cast<uint64_t>(fields.integer("seed", 0).value_or(root.table("run").integer("seed", 0)));
    if (fields.has("batch"))
        data.given.push_back(
            {"train", "sequences_per_step", spec.origin, ConfigValue{spec.sequences_per_step, spec.origin, true}});
    options.fall_back_on(config);
    spec.plugin = "data/" + name;
    data.read = keys_read(config, [&] { spec.source = state_of(L).host().make_data(name, options, spec.origin); });
    std::vector<const Data*> sources;
    const std::vector<DataPart> parts = parts_of(L, 2, data.function, place, sources);
    if (!spec.source->over(parts) && !parts.empty())
        throw Error(spec.origin, data.function + ": it takes no sources\n  o.data.mixture does");
    give_options(data, options);
    if (parts.empty())
        give_alone(data);
    else
        give_mixture(data, parts, sources, lua_isstring(L, 3));
    read_validation(L, fields, config, data);
    options.reject_unused();
    add_parts(spec, parts, sources);
    push_object(L, std::move(data));
    return 1;
}

/// native.data_mix() -> { { weight, path }, ... } of data.mix, nil when it is empty.
int mix(lua_State* L) {
    Config& config = state_of(L).host().config().table("data");
    const std::vector<std::string> all = config.texts("mix");
    if (all.empty()) return 0;
    if (const std::string path = config.text("path", ""); !path.empty())
        throw Error(
            config.where("mix"),
            fmt::format("data.mix and data.path = {} ({}) are both set\n  leave one of them out: --set data.path=",
                        path, config.where("path").text()));
    lua_createtable(L, static_cast<int>(all.size()), 0);
    for (size_t i = 0; i < all.size(); ++i) {
        const std::string_view entry = trim(all[i]);
        const size_t end = entry.find_first_of(" \t");
        double weight = 0;
        const auto [stop, problem] = std::from_chars(entry.data(), entry.data() + std::min(end, entry.size()), weight);
        const bool whole = problem == std::errc() && end != std::string_view::npos && stop == entry.data() + end;
        if (!whole)
            throw Error(config.where("mix"), fmt::format("data.mix[{}] is {}, expected a weight and a file, as \"0.7 "
                                                         "data/web.bin\"",
                                                         i + 1, quote(all[i])));
        lua_createtable(L, 2, 0);
        lua_pushnumber(L, weight);
        lua_rawseti(L, -2, 1);
        push(L, trim(entry.substr(end)));
        lua_rawseti(L, -2, 2);
        lua_rawseti(L, -2, static_cast<lua_Integer>(i + 1));
    }
    return 1;
}

}  // namespace

int64_t batch_of(const Data& data) {
    if (data.spec.sequences_per_step > 0) return data.spec.sequences_per_step;
    throw Error(data.spec.origin,
                fmt::format("{}: batch is missing\n  give it here or as train.sequences_per_step in the configuration",
                            data.function));
}

void open_data(lua_State* L) {
    const luaL_Reg functions[] = {{"__index", guard<index_data>}, {nullptr, nullptr}};
    new_class<Data>(L, functions);
    lua_pop(L, 1);
    lua_pushcfunction(L, guard<make>);
    lua_setfield(L, -2, "data");
    lua_pushcfunction(L, guard<mix>);
    lua_setfield(L, -2, "data_mix");
}

}  // namespace orrery::lua
