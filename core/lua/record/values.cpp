// Implements values (recorded arrays) in Lua: operators, fields, and the methods that do not map to one op.
#include <fmt/format.h>

#include <algorithm>

#include "base/suggest.h"
#include "base/text.h"
#include "compile/capacity.h"
#include "ir/describe.h"
#include "ir/op.h"
#include "ir/plugin_ops.h"
#include "lua/record/op_call.h"
#include "lua/record/tape.h"
#include "lua/state.h"

namespace orrery::lua {

void push_symbol(lua_State* L, const std::shared_ptr<Tape>& tape, ValueId id) { push_object(L, Symbol{tape, id}); }

ValueId check_own(lua_State* L, int index, const std::shared_ptr<Tape>& tape) {
    const Symbol& x = check<Symbol>(L, index);
    if (x.tape != tape)
        bad_argument(L, index,
                     fmt::format("{} is a value of another trace\n  use values that this function was given or records",
                                 describe(*x.tape->program, x.id)));
    return x.id;
}

Tape& recording(lua_State* L, const Symbol& symbol) {
    Tape& tape = *symbol.tape;
    if (tape.use == TapeUse::forward || tape.use == TapeUse::update) return tape;
    const std::string name = label_of(*tape.program, symbol.id);
    if (tape.use == TapeUse::annotate)
        fail(L, fmt::format("a strategy cannot add ops, it can only mark values\n  an op uses {}", name));
    if (tape.use == TapeUse::decompose)
        fail(L,
             fmt::format("a decomposition adds ops with its argument add, as in add(\"mul\", {{ a, b }})\n  an op was "
                         "called with {}",
                         name));
    fail(L,
         fmt::format("{} belongs to the program \"{}\", whose trace has ended\n  use values only inside the function "
                     "given to o.trace",
                     name, tape.program->name));
}

int check_dim(lua_State* L, int index, const Symbol& of) {
    const Value& value = of.value();
    const auto rank = static_cast<int64_t>(value.dims.size());
    if (lua_type(L, index) == LUA_TSTRING) {
        const std::string name = check_text(L, index);
        const auto dim = of.tape->program->dim(of.id, name);
        if (!dim)
            bad_argument(L, index, fmt::format("no dim {} in {}", quote(name), describe(*of.tape->program, of.id)));
        return *dim;
    }
    const int64_t dim = check_integer(L, index);
    if (dim < 1 || dim > rank)
        bad_argument(
            L, index,
            fmt::format("dim {} of {} does not exist: dims count from 1", dim, describe(*of.tape->program, of.id)));
    return static_cast<int>(dim - 1);
}

namespace {

// ---- operators of values

/// Records a binary operator. A number becomes a constant of the other operand's type.
int binary(lua_State* L, std::string_view kind) {
    const Symbol* left = test<Symbol>(L, 1);
    const Symbol* right = test<Symbol>(L, 2);
    const Symbol& one = left ? *left : *right;
    Tape& tape = recording(L, one);
    if (left && right) {
        if (left->tape != right->tape)
            fail(L, fmt::format("'{}': {} and {} belong to different programs", function_name(L),
                                label_of(*left->tape->program, left->id), label_of(*right->tape->program, right->id)));
        return record(L, left->tape, kind, {left->id, right->id}, {});
    }
    const int other = left ? 2 : 1;
    if (lua_type(L, other) != LUA_TNUMBER)
        fail(L, fmt::format("'{}': a value or a number expected, got {}", function_name(L), type_text(L, other)));
    const double number = lua_tonumber(L, other);
    if (kind == "mul") return record(L, one.tape, "scale", {one.id}, {{"by", number}});
    if (kind == "div" && left) return record(L, one.tape, "scale", {one.id}, {{"by", 1 / number}});
    const ValueId made = constant(L, tape, number, one.value().type.dtype);
    return record(L, one.tape, kind, left ? std::vector{one.id, made} : std::vector{made, one.id}, {});
}

int op_add(lua_State* L) { return binary(L, "add"); }
int op_sub(lua_State* L) { return binary(L, "sub"); }
int op_mul(lua_State* L) { return binary(L, "mul"); }
int op_div(lua_State* L) { return binary(L, "div"); }
int op_pow(lua_State* L) { return binary(L, "pow"); }

int op_neg(lua_State* L) {
    const Symbol& x = check<Symbol>(L, 1);
    recording(L, x);
    return record(L, x.tape, "neg", {x.id}, {});
}

/// An operator, or function of Lua's math library, that values do not support, and what to write in its place.
struct Instead {
    const char* symbol;      ///< what the script has written: an operator, or math.NAME
    const char* write;       ///< what it writes in its place
    const char* event = "";  ///< the operator's event in metatables
};
constexpr Instead operators_instead[] = {
    {"< or >", "x:less(y), x:greater(y) or x:less_equal(y), and m:select(a, b) to choose by it", "__lt"},
    {"<= or >=", "x:less_equal(y) or x:greater_equal(y), and m:select(a, b) to choose by it", "__le"},
    {"%", "x - n * (x / n):cast(\"i32\"):cast(\"f32\") for x of at least 0 and a number n", "__mod"},
    {"//", "(x / n):cast(\"i32\") for x of at least 0 and a number n", "__idiv"},
    {"..", "a:concat(b, { dim = }) or o.concat({ a, b, c }, { dim = })", "__concat"},
};
constexpr std::string_view math_prefix = "math.";
constexpr Instead math_instead[] = {
    {"math.min", "x:minimum(y)"}, {"math.max", "x:maximum(y)"}, {"math.abs", "x:abs()"},
    {"math.exp", "x:exp()"},      {"math.log", "x:log()"},      {"math.sqrt", "x:sqrt()"},
    {"math.sin", "x:sin()"},      {"math.cos", "x:cos()"},      {"math.floor", "x:cast(\"i32\") for x of at least 0"}};

/// Throws Error for an operator that values do not have, such as <. Upvalue 1: Instead, light userdata.
int refuse_operator(lua_State* L) {
    const auto* instead = static_cast<const Instead*>(lua_touserdata(L, lua_upvalueindex(1)));
    const Symbol* left = test<Symbol>(L, 1);
    const Symbol& x = left ? *left : check<Symbol>(L, 2);
    fail(L, fmt::format("{} is a value of the program, whose elements are not known while it is recorded: Lua's "
                        "operator {} has no answer\n  write {}",
                        describe(*x.tape->program, x.id), instead->symbol, instead->write));
}

/// Calls a function of Lua's math library, but refuses values. Upvalue 1: the function; 2: Instead, light userdata.
int refuse_values(lua_State* L) {
    const auto* instead = static_cast<const Instead*>(lua_touserdata(L, lua_upvalueindex(2)));
    const int count = lua_gettop(L);
    for (int i = 1; i <= count; ++i)
        if (const Symbol* x = test<Symbol>(L, i))
            fail(L, fmt::format("{} takes numbers, and {} is a value of the program\n  write {}", instead->symbol,
                                describe(*x->tape->program, x->id), instead->write));
    // Lua's own function would name neither itself nor the line of the script, since it is called from here.
    for (int i = 1; i <= std::max(1, count); ++i)
        if (!lua_isnumber(L, i) && !(i > 1 && lua_isnoneornil(L, i))) check_number(L, i);
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_insert(L, 1);
    lua_call(L, count, LUA_MULTRET);
    return lua_gettop(L);
}

// ---- methods of values that do not map to one op

/// x:reshape { "batch", "seq", { "heads", 12 }, 64 }: a name is a dim of x, {name, size} a new named dim, a number a
/// dim without name.
int reshape(lua_State* L) {
    const Symbol& x = check<Symbol>(L, 1);
    recording(L, x);
    check_table(L, 2, "a list of dims");
    Shape shape;
    Builder::DimNames names;
    for (lua_Integer i = 1; lua_rawgeti(L, 2, i) != LUA_TNIL; ++i) {
        if (lua_type(L, -1) == LUA_TSTRING) {
            shape.push_back(x.value().type.shape[static_cast<size_t>(check_dim(L, -1, x))]);
            names.push_back(check_text(L, -1));
        } else if (lua_istable(L, -1)) {
            lua_rawgeti(L, -1, 1);
            lua_rawgeti(L, -2, 2);
            if (lua_type(L, -2) != LUA_TSTRING || !lua_isinteger(L, -1))
                fail(L, fmt::format("reshape: dim {} must be written {{ \"name\", size }}", i));
            names.push_back(check_text(L, -2));
            shape.push_back(lua_tointeger(L, -1));
            lua_pop(L, 2);
        } else if (lua_isinteger(L, -1)) {
            shape.push_back(lua_tointeger(L, -1));
            names.emplace_back();
        } else {
            fail(L, fmt::format("reshape: dim {} is {}, expected a name, {{ name, size }} or a size", i,
                                type_text(L, -1)));
        }
        lua_pop(L, 1);
    }
    return record(L, x.tape, "reshape", {x.id}, {{"shape", shape}}, {names});
}

/// x:dropout(p, places): during training, zeroes a share p of the elements and scales the rest by 1/(1-p). `places`
/// i32 [B, T] of x [B, T, ...], or nothing: the mask of a token belongs to its place.
int dropout(lua_State* L) {
    const Symbol& x = check<Symbol>(L, 1);
    Tape& tape = recording(L, x);
    const double p = check_number(L, 2);
    if (!(p >= 0 && p < 1)) bad_argument(L, 2, fmt::format("a probability in [0, 1) expected, got {}", p));
    const ValueId places = lua_isnoneornil(L, 3) ? none : check_own(L, 3, x.tape);
    const int64_t stream = tape.streams++;  // also counts in evaluation, so that all programs have equal streams
    if (p == 0 || !tape.training) {
        push_symbol(L, x.tape, x.id);
        return 1;
    }
    const ValueId seed = host_input(L, tape, "seed", DType::u32);
    std::vector<ValueId> inputs{x.id, seed};
    if (places != none) inputs.push_back(places);
    return record(L, x.tape, "dropout", std::move(inputs), {{"p", p}, {"stream", stream}});
}

/// x:named(name) -> x, which has the name in messages, results and strategies.
int named(lua_State* L) {
    const Symbol& x = check<Symbol>(L, 1);
    Tape& tape = recording(L, x);
    const std::string name = check_text(L, 2);
    tape.builder.name(x.id, name, where(L));
    if (x.value().type.dtype == DType::f32 && load_scope(name)) tape.named_load = x.id;
    lua_settop(L, 1);
    return 1;
}

/// x:dim(name) -> the size of the dim.
int dim(lua_State* L) {
    const Symbol& x = check<Symbol>(L, 1);
    lua_pushinteger(L, x.value().type.shape[static_cast<size_t>(check_dim(L, 2, x))]);
    return 1;
}

int to_text(lua_State* L) {
    const Symbol& x = check<Symbol>(L, 1);
    push(L, label_of(*x.tape->program, x.id) + " " + text_of(x.value().type, x.value().dims));
    return 1;
}

bool push_data_field(lua_State* L, const Symbol& x, const std::string& key) {
    const Value& value = x.value();
    if (key == "shape")
        push(L, value.type.shape);
    else if (key == "dims")
        push(L, value.dims);
    else if (key == "dtype")
        push(L, name_of(value.type.dtype));
    else if (key == "name")
        push(L, label_of(*x.tape->program, x.id));
    else
        return false;
    return true;
}

std::vector<std::string> all_names(lua_State* L, int methods) {
    std::vector<std::string> names = {"shape", "dims", "dtype", "name"};
    for (lua_pushnil(L); lua_next(L, methods); lua_pop(L, 1)) names.emplace_back(lua_tostring(L, -2));
    for (const OpDef* def : own_ops())
        if (!def->collective) names.emplace_back(def->name);
    return names;
}

/// Throws Error for an unknown method or field of a value, with the closest names and where to find all names.
[[noreturn]] void refuse_name(lua_State* L, const std::string& key, std::vector<std::string> names) {
    constexpr size_t most = 6;
    std::ranges::sort(names);
    names.erase(std::ranges::unique(names).begin(), names.end());
    const size_t known = names.size();
    std::ranges::stable_sort(names, {}, [&](const std::string& name) {
        const bool begins = name.starts_with(key) || key.starts_with(name);
        return edit_distance(key, name) - (begins ? 100 : 0);
    });
    const std::string guess = did_you_mean(key, names);
    names.resize(std::min(most, known));
    fail(L, fmt::format("values have no field or op {}{}\n  the closest: {}; all {} are in {}, class Value", quote(key),
                        guess.empty() ? "" : "        " + guess, join(names, ", "), known,
                        (state_of(L).library() / "orrery/meta.lua").string()));
}

/// Implements __index of values. Upvalue 1: the methods, to which ops are added on first use. Ops of plugins are not
/// methods: a script names them as o.op.NAME, which loads the plugin.
int index(lua_State* L) {
    const Symbol& x = check<Symbol>(L, 1);
    const std::string key = check_text(L, 2);
    const int methods = lua_upvalueindex(1);
    if (push_data_field(L, x, key)) return 1;
    if (lua_getfield(L, methods, key.c_str()) != LUA_TNIL) return 1;
    const OpDef* def = find_op_def(key);
    if (!def || find_plugin_op(key) || def->collective || def->operands.empty())
        refuse_name(L, key, all_names(L, methods));
    lua_pushlightuserdata(L, const_cast<OpDef*>(def));
    lua_pushcclosure(L, guard<call_op>, 1);
    lua_pushvalue(L, -1);
    lua_setfield(L, methods, key.c_str());
    return 1;
}

}  // namespace

void open_values(lua_State* L) {
    const luaL_Reg operators[] = {{"__add", guard<op_add>},       {"__sub", guard<op_sub>}, {"__mul", guard<op_mul>},
                                  {"__div", guard<op_div>},       {"__pow", guard<op_pow>}, {"__unm", guard<op_neg>},
                                  {"__tostring", guard<to_text>}, {nullptr, nullptr}};
    new_class<Symbol>(L, operators);
    for (const Instead& instead : operators_instead) {
        lua_pushlightuserdata(L, const_cast<Instead*>(&instead));
        lua_pushcclosure(L, guard<refuse_operator>, 1);
        lua_setfield(L, -2, instead.event);
    }
    lua_getglobal(L, "math");
    for (const Instead& instead : math_instead) {
        const char* const name = instead.symbol + math_prefix.size();
        lua_getfield(L, -1, name);
        lua_pushlightuserdata(L, const_cast<Instead*>(&instead));
        lua_pushcclosure(L, guard<refuse_values>, 2);
        lua_setfield(L, -2, name);
    }
    lua_pop(L, 1);
    const luaL_Reg methods[] = {{"reshape", guard<reshape>},
                                {"dropout", guard<dropout>},
                                {"named", guard<named>},
                                {"dim", guard<dim>},
                                {nullptr, nullptr}};
    luaL_newlib(L, methods);
    add_state_methods(L);
    add_mark_methods(L);
    lua_pushvalue(L, -1);
    lua_setfield(L, -3, "methods");
    lua_pushcclosure(L, guard<index>, 1);
    lua_setfield(L, -2, "__index");
    lua_pop(L, 1);
}

}  // namespace orrery::lua
