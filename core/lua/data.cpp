// o.data: where training text comes from. Nothing is read here; the session reads.
#include <fmt/format.h>

#include "base/text.h"
#include "lua/data.h"
#include "lua/fields.h"
#include "lua/state.h"

namespace orrery::lua {

namespace {

void push_array(lua_State* L, const DataSpec& spec, const char* name) {
    lua_createtable(L, 0, 3);
    lua_pushstring(L, name);
    lua_setfield(L, -2, "name");
    lua_pushstring(L, "i32");
    lua_setfield(L, -2, "dtype");
    lua_createtable(L, 2, 0);
    const std::pair<const char*, int64_t> dims[] = {{"batch", spec.sequences_per_step}, {"seq", spec.sequence}};
    for (lua_Integer i = 1; i <= 2; ++i) {
        lua_createtable(L, 2, 0);
        lua_pushstring(L, dims[i - 1].first);
        lua_rawseti(L, -2, 1);
        lua_pushinteger(L, dims[i - 1].second);
        lua_rawseti(L, -2, 2);
        lua_rawseti(L, -2, i);
    }
    lua_setfield(L, -2, "shape");
}

int index(lua_State* L) {
    const DataSpec& spec = check<Data>(L, 1).spec;
    const std::string key = check_text(L, 2);
    if (key == "signature") {
        lua_createtable(L, 2, 0);
        push_array(L, spec, "tokens");
        lua_rawseti(L, -2, 1);
        push_array(L, spec, "targets");
        lua_rawseti(L, -2, 2);
    } else if (key == "batch") {
        lua_pushinteger(L, spec.sequences_per_step);
    } else if (key == "seq") {
        lua_pushinteger(L, spec.sequence);
    } else if (key == "vocab") {
        if (spec.vocab == 0)
            fail(L, fmt::format("data.vocab is missing: token file {} does not say how many ids there are\n  set "
                                "data.vocab to its tokenizer's number of ids (256 after `orrery tokenize`), or give "
                                "vocab = to o.data.tokens",
                                quote(spec.path)));
        lua_pushinteger(L, spec.vocab);
    } else if (key == "path") {
        push(L, spec.path);
    } else {
        fail(L, fmt::format("data has no field {}\n  known: signature, batch, seq, vocab, path", quote(key)));
    }
    return 1;
}

// A source without a path describes shapes only: `orrery check` proves a plan for a cluster without its data.

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

int make(lua_State* L, DataSpec::Kind kind, const std::string& function) {
    Config& root = state_of(L).host().config();
    Config& config = root.table("data");
    Fields fields(L, 1, function);
    DataSpec spec;
    spec.kind = kind;
    spec.origin = where(L);
    spec.path = fields.text("path").value_or(config.text("path", ""));
    spec.sequences_per_step = required(L, fields.integer("batch", 1), function, "batch", "train", "sequences_per_step");
    spec.sequence = required(L, fields.integer("seq", 1), function, "seq", "data", "tokens_per_sequence");
    spec.vocab = fields.integer("vocab", 1).value_or(config.integer("vocab", kind == DataSpec::Kind::text ? 256 : 0));
    spec.validation = fields.number("validation").value_or(config.number("validation", 0.05));
    if (!(spec.validation >= 0 && spec.validation <= 0.5))
        out_of_bounds(fields, config, "validation", spec.validation, "a share from 0 to 0.5");
    spec.seed = static_cast<uint64_t>(fields.integer("seed", 0).value_or(root.table("run").integer("seed", 1)));
    if (kind == DataSpec::Kind::tokens) {
        spec.token_bytes = static_cast<int>(fields.integer("token_bytes").value_or(config.integer("token_bytes", 2)));
        if (spec.token_bytes != 2 && spec.token_bytes != 4)
            out_of_bounds(fields, config, "token_bytes", spec.token_bytes, "2 or 4");
    }
    fields.finish();
    push_object(L, Data{std::move(spec)});
    return 1;
}

int text(lua_State* L) { return make(L, DataSpec::Kind::text, "o.data.text"); }
int tokens(lua_State* L) { return make(L, DataSpec::Kind::tokens, "o.data.tokens"); }

}  // namespace

void open_data(lua_State* L) {
    const luaL_Reg functions[] = {{"__index", guard<index>}, {nullptr, nullptr}};
    new_class<Data>(L, functions);
    lua_pop(L, 1);
    lua_pushcfunction(L, guard<text>);
    lua_setfield(L, -2, "text");
    lua_pushcfunction(L, guard<tokens>);
    lua_setfield(L, -2, "tokens");
}

}  // namespace orrery::lua
