// Implements o.codec: two Lua functions, encode and decode, that passes call when they know what a message carries.
#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "ir/codecs.h"
#include "lua/fields.h"
#include "lua/record/decompose.h"
#include "lua/state.h"

namespace orrery::lua {

namespace {

/// A call of a function of a codec: its values belong to a tape that reads the program, to which `add` adds ops.
struct CodecCall {
    lua_State* L;
    std::shared_ptr<Tape> tape;
    CloseView close;

    CodecCall(State& state, const Coding& at, const Origin& origin)
        : L(state.lua()),
          tape(std::make_shared<Tape>(const_cast<Program&>(at.program), at.mesh, "", origin)),
          close{*tape} {
        tape->use = TapeUse::decompose;
        tape->add = &at.add;
    }

    void push_list(const std::vector<ValueId>& ids) const {
        lua_createtable(L, static_cast<int>(ids.size()), 0);
        for (size_t i = 0; i < ids.size(); ++i) {
            push_symbol(L, tape, ids[i]);
            lua_rawseti(L, -2, static_cast<lua_Integer>(i) + 1);
        }
    }
};

std::vector<ValueId> call_encode(State& state, int function, const Coding& at, ValueId x, const Origin& origin) {
    std::vector<ValueId> codes;
    state.call_later([&] {
        const CodecCall call(state, at, origin);
        lua_State* const L = call.L;
        lua_rawgeti(L, LUA_REGISTRYINDEX, function);
        push_symbol(L, call.tape, x);
        push_add(L, call.tape, x);
        lua_call(L, 2, 1);
        if (!lua_istable(L, -1))
            throw Error(origin, fmt::format("it returned {}; return a list, {{ q, scale }}", type_text(L, -1)));
        codes = check_values(L, lua_gettop(L), call.tape, "codes");
        if (codes.empty()) throw Error(origin, "it returned no codes; return a list, { q, scale }");
    });
    return codes;
}

ValueId call_decode(State& state, int function, const Coding& at, const std::vector<ValueId>& codes, const Shape& shape,
                    const Origin& origin) {
    ValueId decoded = none;
    state.call_later([&] {
        const CodecCall call(state, at, origin);
        lua_State* const L = call.L;
        lua_rawgeti(L, LUA_REGISTRYINDEX, function);
        call.push_list(codes);
        push(L, std::vector<int64_t>(shape.begin(), shape.end()));
        push_add(L, call.tape, codes[0]);
        lua_call(L, 3, 1);
        const Symbol* const made = test<Symbol>(L, -1);
        if (!made || made->tape != call.tape)
            throw Error(origin, fmt::format("it returned {}; return a value that add returned", type_text(L, -1)));
        decoded = made->id;
    });
    return decoded;
}

int function_of(lua_State* L, Fields& fields, const char* key, std::string_view expected, std::string& text) {
    fields.push_field(key);
    if (!lua_isfunction(L, -1)) fields.wrong(key, expected);
    text += text_of_function(L);
    return luaL_ref(L, LUA_REGISTRYINDEX);
}

/// o.codec { name =, encode = function(x, add), decode = function(codes, shape, add), bound =, block =, activations =
/// }: declares a codec, which strategies then name.
int declare_codec(lua_State* L) {
    State& state = state_of(L);
    if (state.runs > 0)
        fail(L, "o.codec: the script has compiled a program already; declare codecs before program:compile()");
    Fields fields(L, 1, "o.codec");
    const Origin origin = where(L);
    Codec own;
    own.name = fields.text("name").value_or("");
    if (own.name.empty()) fields.wrong("name", "a name for strategies to give, as in codec = \"mine\"");
    const auto same = [&](const auto& other) { return other.name == own.name; };
    const auto same_own = [&](const auto& other) { return other->name == own.name; };
    if (std::ranges::any_of(codecs(), same) || std::ranges::any_of(state.codecs, same_own))
        fields.wrong("name", "one that no other codec has, neither of the library nor of a plugin (orrery plugins)");
    const auto bound = fields.number("bound");
    if (!bound || !(*bound >= 0 && *bound < 1e9))
        fields.wrong("bound", "a number of at least 0: the largest ||x - decode(encode(x))|| / ||x||");
    own.bound = *bound;
    own.block = fields.integer("block", 1).value_or(1);
    own.near = fields.flag("activations").value_or(false);
    own.text = fmt::format("{} bound {} block {}{}\n", own.name, own.bound, own.block, own.near ? " activations" : "");
    const int encodes = function_of(L, fields, "encode", "a function (x, add)", own.text);
    const int decodes = function_of(L, fields, "decode", "a function (codes, shape, add)", own.text);
    fields.finish();
    own.encode = [&state, encodes, origin](const Coding& at, ValueId x) {
        return call_encode(state, encodes, at, x, origin);
    };
    own.decode = [&state, decodes, origin](const Coding& at, const std::vector<ValueId>& codes, const Shape& shape) {
        return call_decode(state, decodes, at, codes, shape, origin);
    };
    state.codecs.push_back(std::make_shared<const Codec>(std::move(own)));
    return 0;
}

}  // namespace

void open_codec(lua_State* L) {
    lua_pushcfunction(L, guard<declare_codec>);
    lua_setfield(L, -2, "codec");
}

}  // namespace orrery::lua
