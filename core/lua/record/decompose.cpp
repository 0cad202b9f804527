// Implements o.decompose: a Lua function that replaces an op by others, which propagation calls when it knows layouts.
#include <fmt/format.h>

#include <algorithm>

#include "base/suggest.h"
#include "base/text.h"
#include "ir/op.h"
#include "lua/fields.h"
#include "lua/record/decompose.h"
#include "lua/record/marks.h"
#include "lua/record/op_call.h"
#include "lua/state.h"

namespace orrery::lua {

std::vector<ValueId> check_values(lua_State* L, int index, const std::shared_ptr<Tape>& tape, const std::string& name) {
    std::vector<ValueId> ids;
    check_table(L, index, "a list of " + name);
    for (lua_Integer i = 1; lua_rawgeti(L, index, i) != LUA_TNIL; ++i, lua_pop(L, 1)) {
        const Symbol* x = test<Symbol>(L, -1);
        if (x && x->tape == tape) {
            ids.push_back(x->id);
            continue;
        }
        fail(L,
             fmt::format("add: {}[{}] is {}, expected a value that the function was given, or one that add returned in "
                         "this call",
                         name, i, x ? "a value of another op or program" : type_text(L, -1)));
    }
    lua_pop(L, 1);
    return ids;
}

namespace {

/// Reads the attributes of a part from the table at `index`. Names of dims are those of `x`.
Attributes check_attributes(lua_State* L, int index, const OpDef& def, const Symbol& x) {
    Attributes attributes;
    if (lua_isnoneornil(L, index)) return attributes;
    check_table(L, index, "a table of attributes");
    push_sorted_keys(L, index);
    const int keys = lua_gettop(L);
    for (lua_Integer i = 1; lua_rawgeti(L, keys, i) != LUA_TNIL; ++i, lua_settop(L, keys)) {
        if (lua_type(L, -1) != LUA_TSTRING)
            fail(L, fmt::format("add: attributes of {} must have names: write {{ name = value }}", def.name));
        const std::string key = check_text(L, -1);
        lua_rawget(L, index);
        std::vector<std::string> known;
        for (const AttributeDef& attribute : def.attributes) {
            known.emplace_back(attribute.name);
            if (key == attribute.name) attributes.set(key, attribute_at(L, -1, def, attribute, x));
        }
        if (std::ranges::find(known, key) == known.end())
            fail(L, fmt::format("add: {} has no attribute {}{}", def.name, quote(key),
                                known.empty() ? "; it has none" : choices("its attributes", key, known)));
    }
    lua_settop(L, keys - 1);
    return attributes;
}

/// Pushes an op's attributes as add() reads them: dims count from 1. Those that passes set are left out.
void push_attributes(lua_State* L, const Attributes& attributes) {
    lua_newtable(L);
    for (const auto& [key, attribute] : attributes.items()) {
        if (set_by_passes(key)) continue;
        const int64_t first = names_dims(key) ? 1 : 0;
        if (const bool* flag = std::get_if<bool>(&attribute)) lua_pushboolean(L, *flag);
        if (const int64_t* integer = std::get_if<int64_t>(&attribute)) lua_pushinteger(L, *integer + first);
        if (const double* real = std::get_if<double>(&attribute)) lua_pushnumber(L, *real);
        if (const std::string* word = std::get_if<std::string>(&attribute)) push(L, *word);
        if (const auto* list = std::get_if<std::vector<int64_t>>(&attribute)) {
            std::vector<int64_t> numbers = *list;
            for (int64_t& number : numbers) number += first;
            push(L, numbers);
        }
        lua_setfield(L, -2, key.c_str());
    }
}

/// add(kind, inputs [, attributes [, made]]) -> the outputs of the new op. Upvalue 1: a value of the op.
int add(lua_State* L) {
    const Symbol& of = check<Symbol>(L, lua_upvalueindex(1));
    const std::shared_ptr<Tape> tape = of.tape;
    if (tape->use != TapeUse::decompose)
        fail(L, "add: can only be called while the function that it was given to runs; call it before it returns");
    const OpDef& def = op_def(check_text(L, 1), where(L));
    if (def.collective)
        fail(L, fmt::format(
                    "add: {} is a collective, and a decomposition adds none: propagation inserts what the layouts "
                    "of its ops need\n  to pass blocks from rank to rank, add a roll of the dim that the axis splits",
                    def.name));
    const std::vector<ValueId> inputs = check_values(L, 2, tape, "inputs");
    Attributes attributes = check_attributes(L, 3, def, inputs.empty() ? of : Symbol{tape, inputs.front()});
    if (tape->at && def.name == tape->at->op.kind)
        for (const auto& [key, value] : tape->at->op.attributes.items())
            if (set_by_passes(key)) attributes.set(key, value);
    const std::vector<ValueId> made = lua_isnoneornil(L, 4) ? std::vector<ValueId>{} : check_values(L, 4, tape, "made");
    state_of(L).charge_op();
    std::vector<ValueId> outputs;
    try {
        outputs = (*tape->add)(def.name, inputs, std::move(attributes), made);
    } catch (const Error& error) {  // it names the line of the decomposed op
        throw Error(fmt::format("{}\n  added at {}", error.what(), where(L).text()), error.fault());
    }
    luaL_checkstack(L, static_cast<int>(outputs.size()), "too many results");
    for (const ValueId id : outputs) push_symbol(L, tape, id);
    return static_cast<int>(outputs.size());
}

/// Pushes the function's first argument: the op, as strategies see one, with phase, attributes, and the axis.
void push_decomposed(lua_State* L, const std::shared_ptr<Tape>& tape, const std::string& axis) {
    const Op& op = tape->at->op;
    push_op(L, tape, op);
    push(L, op.phase == Phase::forward ? "forward" : op.phase == Phase::backward ? "backward" : "update");
    lua_setfield(L, -2, "phase");
    push_attributes(L, op.attributes);
    lua_setfield(L, -2, "attributes");
    push(L, axis);
    lua_setfield(L, -2, "axis");
    lua_pushinteger(L, tape->at->mesh.size(axis));
    lua_setfield(L, -2, "size");
}

/// Calls the Lua function `parts` (a registry reference) for one op. Returns whether it replaced the op.
bool call_parts(State& state, int parts, const Decomposition& own, const OpLayouts& at, const AddPart& add_part) {
    bool replaced = false;
    state.call_later([&] {
        lua_State* L = state.lua();
        // The tape only reads the program: ops are added by `add_part`, and marks are not accepted.
        const auto tape = std::make_shared<Tape>(const_cast<Program&>(at.program), at.mesh, "", own.origin);
        tape->use = TapeUse::decompose;
        tape->at = &at;
        tape->add = &add_part;
        const CloseView close{*tape};
        lua_rawgeti(L, LUA_REGISTRYINDEX, parts);
        push_decomposed(L, tape, own.axis);
        push_add(L, tape, at.op.outputs.at(0));
        const size_t declared = state.decompositions.size();
        lua_call(L, 2, 1);
        if (state.decompositions.size() > declared)
            throw Error(state.decompositions.back().origin,
                        "o.decompose: called by a decomposition while its program is compiled; declare "
                        "decompositions before program:compile()");
        if (!lua_isnil(L, -1) && !lua_isboolean(L, -1))
            throw Error(own.origin,
                        fmt::format("o.decompose: the function returned {} for {}\n  return true if it made "
                                    "all outputs, false if it does not replace this op",
                                    type_text(L, -1), at.op.kind));
        replaced = lua_toboolean(L, -1) != 0;
    });
    return replaced;
}

}  // namespace

std::string text_of_function(lua_State* L) {
    lua_Debug frame;
    lua_pushvalue(L, -1);
    lua_getinfo(L, ">S", &frame);
    const auto& sources = state_of(L).sources;
    const auto source = sources.find(*frame.source == '@' ? frame.source + 1 : "");
    if (source == sources.end()) return "";
    const std::vector<std::string> lines = split(source->second, '\n');
    std::string text;
    for (int line = frame.linedefined; line <= frame.lastlinedefined; ++line) text += lines.at(line - 1) + "\n";
    return text;
}

namespace {

/// o.decompose { op = , axis = , parts = function(op, add) }: declares a decomposition for programs compiled later.
int decompose(lua_State* L) {
    State& state = state_of(L);
    if (state.runs > 0)
        fail(L,
             "o.decompose: the script has compiled a program already; declare decompositions before program:compile()");
    Fields fields(L, 1, "o.decompose");
    Decomposition own;
    own.origin = where(L);
    const auto op = fields.text("op"), axis = fields.text("axis");
    if (!op) fields.wrong("op", "the name of an op");
    if (!axis) fields.wrong("axis", "the name of an axis of the mesh");
    own.op = *op;
    own.axis = *axis;
    if (op_def(own.op, own.origin).collective)
        fail(L,
             fmt::format("o.decompose: {} is a collective, which propagation inserts; name an op of the script, or of "
                         "its gradient",
                         own.op));
    fields.push_field("parts");
    if (!lua_isfunction(L, -1)) fields.wrong("parts", "a function (op, add)");
    own.text = text_of_function(L);
    const int parts = luaL_ref(L, LUA_REGISTRYINDEX);
    fields.finish();
    own.parts = [&state, parts, asked = Decomposition{own.op, own.axis, "", own.origin, {}}](const OpLayouts& at,
                                                                                             const AddPart& add_part) {
        return call_parts(state, parts, asked, at, add_part);
    };
    state.decompositions.push_back(std::move(own));
    return 0;
}

}  // namespace

void push_add(lua_State* L, const std::shared_ptr<Tape>& tape, ValueId of) {
    push_symbol(L, tape, of);
    lua_pushcclosure(L, guard<add>, 1);
}

void open_decompose(lua_State* L) {
    lua_pushcfunction(L, guard<decompose>);
    lua_setfield(L, -2, "decompose");
}

}  // namespace orrery::lua
