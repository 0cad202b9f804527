// Implements the recording functions inside o.trace: params, scopes, and the inputs that the host fills.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "base/suggest.h"
#include "base/text.h"
#include "compile/passes/status_word.h"
#include "compile/step_value.h"
#include "ir/describe.h"
#include "lua/fields.h"
#include "lua/record/capacity.h"
#include "lua/record/op_call.h"
#include "lua/record/traced.h"
#include "lua/state.h"

namespace orrery::lua {

std::shared_ptr<Tape> current_tape(lua_State* L, std::string_view function) {
    std::shared_ptr<Tape> tape = state_of(L).tape;
    if (!tape)
        fail(L,
             fmt::format("{}: can only be called inside the function given to o.trace, or in an optimizer", function));
    return tape;
}

ValueId host_input(lua_State* L, Tape& tape, const std::string& name, DType type) {
    const auto found = tape.inputs.find(name);
    if (found != tape.inputs.end()) return found->second;
    const ValueId id = tape.builder.input(name, {type, {}}, {}, where(L));
    tape.inputs.emplace(name, id);
    return id;
}

namespace {

DType dtype_field(lua_State* L, Fields& fields, DType fallback) {
    const auto name = fields.text("dtype");
    if (!name) return fallback;
    const auto dtype = parse_dtype(*name);
    if (!dtype)
        fail(L, fmt::format("no dtype {}{}", quote(*name),
                            choices("known", *name, {"f32", "bf16", "f16", "i32", "u8", "i8"})));
    return *dtype;
}

/// Reads a shape: { {"embed", 768}, {"heads", 768}, 3 }, or sizes with their names in the field `dims`.
void shape_fields(lua_State* L, Fields& fields, Shape& shape, std::vector<std::string>& dims) {
    fields.push_field("shape");
    if (!lua_istable(L, -1)) fields.wrong("shape", "a list of { name, size } or sizes");
    const int list = lua_gettop(L);
    for (lua_Integer i = 1; lua_rawgeti(L, list, i) != LUA_TNIL; ++i) {
        std::string name;
        if (lua_istable(L, -1)) {
            lua_rawgeti(L, -1, 1);
            if (lua_type(L, -1) != LUA_TSTRING) fields.wrong("shape", "a list of { name, size } or sizes");
            name = check_text(L, -1);
            lua_pop(L, 1);
            lua_rawgeti(L, -1, 2);
            lua_replace(L, -2);
        }
        int is_integer = 0;
        const int64_t size = lua_type(L, -1) == LUA_TNUMBER ? lua_tointegerx(L, -1, &is_integer) : 0;
        if (!is_integer)
            fail(L, fmt::format("the size of dim {} {}is {}, expected an integer", i,
                                name.empty() ? "" : quote(name) + " ", type_text(L, -1)));
        shape.push_back(size);
        dims.push_back(name);
        lua_pop(L, 1);
    }
    lua_settop(L, list - 1);
}

/// Reads the field `init`: { kind = "normal", scale = 0.02 }.
Attributes init_field(lua_State* L, Fields& fields) {
    fields.push_field("init");
    if (lua_isnil(L, -1)) {
        lua_pop(L, 1);
        return {{"kind", std::string("zeros")}};
    }
    Fields init(L, -1, "init");
    const std::string kind = init.text("kind").value_or("normal");
    const double scale = init.number("scale").value_or(1);
    if (!(scale >= 0) || std::isinf(scale)) init.wrong("scale", "a number of at least 0");
    init.finish();
    const std::vector<std::string> kinds = {"normal", "uniform", "zeros", "ones"};
    if (std::find(kinds.begin(), kinds.end(), kind) == kinds.end())
        fail(L, fmt::format("no init {}{}", quote(kind), choices("known", kind, kinds)));
    lua_pop(L, 1);
    if (kind == "zeros" || kind == "ones") return {{"kind", kind}};
    return {{"kind", kind}, {"scale", scale}};
}

/// native.param { name = , shape = { {"embed", 768}, ... }, init = { kind = , scale = }, dtype = } -> value.
/// The current scope is prepended to the name. A second call with the same name returns the same value: tied weights.
int param(lua_State* L) {
    const std::shared_ptr<Tape> tape = current_tape(L, "o.param");
    if (tape->use != TapeUse::forward) fail(L, "o.param: can only be called inside the function given to o.trace");
    Fields fields(L, 1, "o.param");
    std::string name = fields.text("name").value_or("");
    if (name.empty()) fields.wrong("name", "a text");
    if (!tape->builder.scope().empty()) name = tape->builder.scope() + "." + name;
    TensorType type{dtype_field(L, fields, DType::f32), {}};
    std::vector<std::string> dims;
    shape_fields(L, fields, type.shape, dims);
    Attributes init = init_field(L, fields);
    fields.finish();
    if (const auto old = tape->params.find(name); old != tape->params.end()) {
        const Value& value = tape->program->value(old->second);
        if (value.role != Role::param || value.type != type || value.dims != dims)
            fail(L, fmt::format(
                        "duplicate param {} {}: it already exists as {}\n  give the second param another name or scope",
                        name, text_of(type, dims), describe(*tape->program, old->second)));
        push_symbol(L, tape, old->second);
        return 1;
    }
    const ValueId id = tape->builder.param(name, std::move(type), std::move(dims), std::move(init), where(L));
    tape->params.emplace(std::move(name), id);
    push_symbol(L, tape, id);
    return 1;
}

/// native.state { name =, shape =, initial =, dtype = } -> value. Returns the value that a state, an array that no
/// optimizer owns, had before the step: `initial` (0) in all elements at first. The scope is prepended to its name. In
/// program:also it is the state of this name of any program of the round, without the scope.
int model_state(lua_State* L) {
    const std::shared_ptr<Tape> tape = current_tape(L, "o.state");
    const bool updates = tape->use == TapeUse::update && tape->also();
    if (tape->use != TapeUse::forward && !updates)
        fail(L, "o.state: can only be called inside the function given to o.trace or program:also");
    Fields fields(L, 1, "o.state");
    std::string name = fields.text("name").value_or("");
    if (name.empty()) fields.wrong("name", "a text");
    if (!updates && !tape->builder.scope().empty()) name = tape->builder.scope() + "." + name;
    TensorType type{dtype_field(L, fields, DType::f32), {}};
    if (!is_float(type.dtype))
        fail(L, fmt::format("o.state: {} is {}, expected a float type: f32 counts exactly up to 2^24", quote(name),
                            name_of(type.dtype)));
    std::vector<std::string> dims;
    shape_fields(L, fields, type.shape, dims);
    const double initial = fields.number("initial").value_or(0);
    if (!(std::abs(initial) <= (type.dtype == DType::f16 ? 65504 : std::numeric_limits<float>::max())))
        fields.wrong("initial", fmt::format("a finite number of {}", name_of(type.dtype)));
    fields.finish();
    const Attributes init{{"kind", std::string("ones")}, {"scale", initial}};
    if (const auto old = updates ? tape->program->find(name) : std::nullopt) {
        const Value& value = tape->program->value(*old);
        if (value.role != Role::state || value.type != type || value.dims != dims || value.init != init)
            fail(L, fmt::format("o.state: {} {} exists already as {}\n  ask for it with the same shape and initial "
                                "value, or choose another name",
                                name, text_of(type, dims), describe(*tape->program, *old)));
        push_symbol(L, tape, *old);
        return 1;
    }
    const ValueId id = tape->builder.state(none, name, std::move(type), init, where(L));
    tape->program->value(id).dims = std::move(dims);
    push_symbol(L, tape, id);
    return 1;
}

/// state:next(value): declares what a state of o.state is after the step. Without effect in evaluation and sampling.
int next(lua_State* L) {
    const Symbol& state = check<Symbol>(L, 1);
    Tape& tape = recording(L, state);
    const Program& program = *tape.program;
    if (tape.use != TapeUse::forward)
        fail(L, "next: can only be called inside the function given to o.trace; an optimizer has update:set");
    if (state.value().role != Role::state)
        fail(L, fmt::format("next: {} is not a state: o.state makes one", describe(program, state.id)));
    const ValueId value = check_own(L, 2, state.tape);
    if (state.value().type != program.value(value).type)
        fail(L, fmt::format("next: {} cannot become {}: the types differ", describe(program, state.id),
                            describe(program, value)));
    for (const Update& update : program.updates)
        if (update.target == state.id)
            fail(L, fmt::format("next: {} has a next value already: {}\n  combine both and call next once",
                                describe(program, state.id), describe(program, update.value)));
    if (tape.training && tape.declares) tape.builder.update(state.id, value, where(L));
    return 0;
}

/// native.scope(name, function, ...) -> the function's results. Ops and params in the function are in the scope `name`.
int scope(lua_State* L) {
    const std::shared_ptr<Tape> tape = current_tape(L, "o.scope");
    const std::string name = check_text(L, 1);
    check_function(L, 2);
    struct Inside {
        Builder& builder;
        Inside(Builder& b, const std::string& name) : builder(b) { builder.push_scope(name); }
        ~Inside() { builder.pop_scope(); }
    } inside(tape->builder, name);
    lua_call(L, lua_gettop(L) - 2, LUA_MULTRET);
    return lua_gettop(L) - 1;
}

int step(lua_State* L) {
    const std::shared_ptr<Tape> tape = current_tape(L, "o.step");
    push_symbol(L, tape, host_input(L, *tape, "step", DType::f32));
    return 1;
}

int training(lua_State* L) {
    lua_pushboolean(L, current_tape(L, "o.training")->training);
    return 1;
}

void push_constant(lua_State* L, const std::shared_ptr<Tape>& tape, double number, const std::string& dtype) {
    state_of(L).charge_op();
    const ValueId id = tape->builder.one(
        "full", {}, {{"shape", std::vector<int64_t>{}}, {"value", number}, {"dtype", dtype}}, where(L));
    push_symbol(L, tape, id);
}

/// native.constant(number [, dtype]) -> a scalar value.
int constant(lua_State* L) {
    const std::shared_ptr<Tape> tape = current_tape(L, "o.constant");
    const double number = check_number(L, 1);
    const std::string dtype = lua_isnoneornil(L, 2) ? "f32" : check_text(L, 2);
    if (!parse_dtype(dtype)) bad_argument(L, 2, fmt::format("no dtype {}", quote(dtype)));
    push_constant(L, tape, number, dtype);
    return 1;
}

/// Reads the field `dim` of a table with a shape: a dim's name, or its number from 1; the default is 1.
int64_t dim_field(lua_State* L, Fields& fields, const std::vector<std::string>& dims) {
    fields.push_field("dim");
    int64_t dim = lua_isnil(L, -1) ? 1 : 0;
    if (lua_type(L, -1) == LUA_TSTRING) {
        const auto found = std::find(dims.begin(), dims.end(), check_text(L, -1));
        if (found != dims.end()) dim = found - dims.begin() + 1;
    } else if (lua_isinteger(L, -1)) {
        dim = lua_tointeger(L, -1);
    }
    if (dim < 1 || dim > static_cast<int64_t>(dims.size()))
        fields.wrong("dim", fmt::format("the name of a dim of its shape, or 1 to {}", dims.size()));
    lua_pop(L, 1);
    return dim - 1;
}

/// The call of a function `name` that makes a value of the shape in its table of fields.
struct ShapedCall {
    ShapedCall(lua_State* L, const std::string& name) : tape(current_tape(L, name)), fields(L, 1, name) {
        shape_fields(L, fields, shape, dims);
    }
    const std::shared_ptr<Tape> tape;
    Fields fields;
    Shape shape;
    std::vector<std::string> dims;
};

/// native.iota { shape = { {"seq", 64}, ... }, dim = "seq", dtype = } -> a value: each element's index along `dim`.
int iota(lua_State* L) {
    ShapedCall call(L, "o.iota");
    const int64_t dim = dim_field(L, call.fields, call.dims);
    const std::string dtype{name_of(dtype_field(L, call.fields, DType::i32))};
    call.fields.finish();
    return record(L, call.tape, "iota", {}, {{"shape", call.shape}, {"dim", dim}, {"dtype", dtype}}, {call.dims});
}

/// native.random { shape = { {"batch", 8}, ... }, kind =, places = } -> a value of random numbers: f32, uniform in
/// [-0.5, 0.5) or normal with deviation 1. They depend on the run's seed, the step, the call's number among those that
/// draw, and each element's index in the whole value, so they are the same on every mesh. `places` i32 [B, T] of a
/// value [B, T, ...]: the index along dim 2 is the place.
int random(lua_State* L) {
    ShapedCall call(L, "o.random");
    const std::string kind = call.fields.text("kind").value_or("uniform");
    call.fields.push_field("places");
    const Symbol* const places = lua_isnil(L, -1) ? nullptr : &check<Symbol>(L, -1);
    if (places && places->tape != call.tape) call.fields.wrong("places", "a value of this trace");
    call.fields.finish();
    const std::vector<std::string> kinds = {"uniform", "normal"};
    if (std::ranges::find(kinds, kind) == kinds.end())
        fail(L, fmt::format("o.random: no kind {}{}", quote(kind), choices("known", kind, kinds)));
    const bool uniform = kind == "uniform";
    const ValueId seed = host_input(L, *call.tape, "seed", DType::u32);
    const Attributes attributes{
        {"shape", call.shape}, {"kind", kind}, {"scale", uniform ? 0.5 : 1.0}, {"stream", call.tape->streams++}};
    std::vector<ValueId> inputs{seed};
    if (places) inputs.push_back(places->id);
    return record(L, call.tape, "random", std::move(inputs), attributes, {call.dims});
}

/// Returns the operand of o.result at `index`, which must be an f32 scalar of the program that is being recorded.
ValueId check_part(lua_State* L, int index, const std::shared_ptr<Tape>& tape) {
    const ValueId id = check_own(L, index, tape);
    if (tape->program->value(id).type != TensorType{DType::f32, {}})
        bad_argument(
            L, index,
            fmt::format("{} is not an f32 scalar of this program\n  sum it: x:sum()", describe(*tape->program, id)));
    return id;
}

/// Declares a value of the whole step as result `name`: f32, a scalar or a list.
int step_value(lua_State* L, const std::shared_ptr<Tape>& tape, const std::string& name) {
    const ValueId id = check_own(L, 2, tape);
    const TensorType& type = tape->program->value(id).type;
    if (type.dtype != DType::f32 || type.shape.size() > 1)
        bad_argument(L, 2,
                     fmt::format("{} is not an f32 scalar or list of this program", describe(*tape->program, id)));
    if (!tape->declares || !tape->training) return 0;
    const Quotient quotient = quotient_of(name);
    const std::string full = name + std::string(step_value_ending);
    if (tape->program->result(full) || tape->program->result(quotient.sum))
        bad_argument(L, 1, fmt::format("duplicate result {}; give one another name", quote(name)));
    tape->builder.result(full, id, where(L));
    return 0;
}

/// native.result(name, sum, count): reports sum / count for each step and evaluation. `count` may be a number.
/// native.result(name, value): reports a value of the whole step for each step.
int result(lua_State* L) {
    const std::shared_ptr<Tape> tape = current_tape(L, "o.result");
    if (tape->use != TapeUse::forward)
        fail(L,
             "o.result: can only be called inside the function given to o.trace; an optimizer has "
             "update:result(name, value)");
    const std::string name = check_text(L, 1);
    check_name(L, 1, name, "a result");
    if (lua_isnoneornil(L, 3)) return step_value(L, tape, name);
    const ValueId sum = check_part(L, 2, tape);
    if (lua_type(L, 3) == LUA_TNUMBER) {
        lua_settop(L, 3);
        push_constant(L, tape, check_number(L, 3), "f32");
        lua_replace(L, 3);
    }
    const ValueId count = check_part(L, 3, tape);
    if (!tape->declares) return 0;
    const Quotient quotient = quotient_of(name);
    if (tape->program->result(quotient.sum) || tape->program->result(name + std::string(step_value_ending)))
        bad_argument(L, 1, fmt::format("duplicate result {}; add up its parts and call o.result once", quote(name)));
    tape->builder.result(quotient.sum, sum, where(L));
    tape->builder.result(quotient.count, count, where(L));
    return 0;
}

/// native.loss_term(x, what, advice): the loss of a train step must depend on x, or the trace is refused.
int loss_term(lua_State* L) {
    const std::shared_ptr<Tape> tape = current_tape(L, "loss_term");
    const std::string& scope = tape->builder.scope();
    tape->loss_terms.push_back(
        {check_own(L, 1, tape), fmt::format("{}{}{} is not part of the loss that the trace returns\n  {}",
                                            check_text(L, 2), scope.empty() ? "" : " of ", scope, check_text(L, 3))});
    return 0;
}

/// native.fail(text): throws Error at the current line of the script, model or strategy.
int fail_there(lua_State* L) { fail(L, check_text(L, 1)); }

/// native.choices(label, name, { names }) -> the second line of a message about an unknown name.
int choices_of(lua_State* L) {
    std::vector<std::string> names;
    check_table(L, 3, "a list of names");
    for (lua_Integer i = 1; lua_rawgeti(L, 3, i) != LUA_TNIL; ++i, lua_pop(L, 1)) names.push_back(check_text(L, -1));
    push(L, choices(check_text(L, 1), check_text(L, 2), std::move(names)));
    return 1;
}

/// native.array(dtype, { {"batch", 8}, ... }) -> an input for the signature of o.trace.
int array(lua_State* L) {
    check_text(L, 1);
    check_table(L, 2);
    lua_createtable(L, 0, 2);
    lua_pushvalue(L, 1);
    lua_setfield(L, -2, "dtype");
    lua_pushvalue(L, 2);
    lua_setfield(L, -2, "shape");
    return 1;
}

InputSpec input_spec(lua_State* L, const std::string& name) {
    InputSpec spec;
    Fields fields(L, -1, "signature of " + quote(name));
    spec.name = fields.text("name").value_or(name);
    spec.type.dtype = dtype_field(L, fields, DType::f32);
    shape_fields(L, fields, spec.type.shape, spec.dims);
    fields.finish();
    if (spec.name == "step" || spec.name == "seed" || spec.name == status_name)
        fail(L,
             fmt::format("reserved name of an input: {} is filled by the host; choose another name", quote(spec.name)));
    return spec;
}

}  // namespace

std::vector<InputSpec> check_signature(lua_State* L, int index) {
    check_table(L, index, "a signature");
    std::vector<InputSpec> specs;
    push_sorted_keys(L, index);
    const int keys = lua_gettop(L);
    for (lua_Integer i = 1; lua_rawgeti(L, keys, i) != LUA_TNIL; ++i) {
        const bool listed = lua_type(L, -1) != LUA_TSTRING;
        const std::string name = listed ? "" : check_text(L, -1);
        lua_rawget(L, index);
        if (!lua_istable(L, -1))
            bad_argument(L, index,
                         fmt::format("entry {} of the signature is {}, expected o.array(dtype, shape)",
                                     listed ? std::to_string(i) : quote(name), type_text(L, -1)));
        specs.push_back(input_spec(L, name));
        if (specs.back().name.empty()) bad_argument(L, index, fmt::format("entry {} of the signature has no name", i));
        lua_pop(L, 1);
    }
    lua_settop(L, keys - 1);
    if (specs.empty()) bad_argument(L, index, "the signature has no inputs");
    return specs;
}

namespace {

/// Implements __index of the table of inputs for absent keys: throws Error, since the signature lacks the name.
int no_input(lua_State* L) {
    const std::string name = type_text(L, 2);
    std::vector<std::string> names;
    for (lua_pushnil(L); lua_next(L, 1); lua_pop(L, 1)) names.push_back(check_text(L, -2));
    const std::string plain = lua_type(L, 2) == LUA_TSTRING ? check_text(L, 2) : name;
    fail(L, fmt::format("the batch has no {}{}", quote(plain), choices("its inputs", plain, names)));
}

/// Sizes for the dims "batch" and "seq"; 0: the size in the signature.
struct Sizes {
    int64_t batch = 0, length = 0;
};

void push_batch(lua_State* L, const Traced& traced, const std::shared_ptr<Tape>& tape, const Sizes& sizes) {
    lua_newtable(L);
    for (const InputSpec& spec : traced.signature) {
        TensorType type = spec.type;
        for (size_t d = 0; d < spec.dims.size(); ++d) {
            if (sizes.batch > 0 && spec.dims[d] == "batch") type.shape[d] = sizes.batch;
            if (sizes.length > 0 && spec.dims[d] == "seq") type.shape[d] = sizes.length;
        }
        push_symbol(L, tape, tape->builder.input(spec.name, type, spec.dims, traced.recipe.trace_origin));
        lua_setfield(L, -2, spec.name.c_str());
    }
    lua_createtable(L, 0, 1);
    lua_pushcfunction(L, guard<no_input>);
    lua_setfield(L, -2, "__index");
    lua_setmetatable(L, -2);
}

/// The text added to messages if a function is recorded with other sizes than its signature declares; otherwise "".
std::string other_sizes(const Traced& traced, const Sizes& sizes) {
    std::set<std::string> others;
    for (const InputSpec& spec : traced.signature)
        for (size_t d = 0; d < spec.dims.size(); ++d) {
            const int64_t asked = spec.dims[d] == "batch" ? sizes.batch : spec.dims[d] == "seq" ? sizes.length : 0;
            if (asked > 0 && asked != spec.type.shape[d]) others.insert(fmt::format("{} = {}", spec.dims[d], asked));
        }
    if (others.empty()) return "";
    return fmt::format(
        "\n  the function was recorded once more, with {}, to evaluate, to sample or for a smaller batch: take sizes "
        "from "
        "its inputs, as in batch.x:dim \"batch\", not from the configuration or from numbers",
        join({others.begin(), others.end()}, ", "));
}

/// A Lua function that records a sum and its count, with the texts that describe it in messages.
struct Recorded {
    int function = LUA_NOREF;
    std::string_view given_to;
    std::string_view sum;
    const Origin& origin;
    Declared& declared;    ///< set to what the function says of its program
    bool declares = true;  ///< whether o.result adds results during the call
};

/// Returns the result at `index` of a traced function, which must be an f32 scalar.
ValueId check_result(lua_State* L, int index, const Recorded& recorded, const Tape& tape, std::string_view what) {
    const Symbol* symbol = test<Symbol>(L, index);
    if (!symbol)
        throw Error(recorded.origin, fmt::format("the function given to {} returned {} as {}, expected a value",
                                                 recorded.given_to, type_text(L, index), what));
    const Value& value = symbol->value();
    if (symbol->tape.get() != &tape || value.type.dtype != DType::f32 || !value.type.shape.empty())
        throw Error(recorded.origin,
                    fmt::format("the function given to {} returned {} as {}, expected an f32 scalar\n"
                                "  logits:cross_entropy(targets) gives the sum of losses and their count",
                                recorded.given_to, describe(*symbol->tape->program, symbol->id), what));
    return symbol->id;
}

/// Throws Error if a train step has a state of o.state without a next value.
void require_next(const Program& program) {
    for (ValueId id = 0; id < std::ssize(program.values); ++id) {
        const Value& value = program.value(id);
        const auto sets = [&](const Update& update) { return update.target == id; };
        if (value.role != Role::state || std::ranges::any_of(program.updates, sets)) continue;
        throw Error(value.origin, fmt::format("o.state: {} has no next value, so it would never change\n  call "
                                              "state:next(value) once in each trace, or use o.constant",
                                              describe(program, id)));
    }
}

/// Throws Error if the loss does not depend on one of its terms (native.loss_term).
void require_terms(const Tape& tape, ValueId loss) {
    if (tape.loss_terms.empty()) return;
    const Program& program = *tape.program;
    std::vector<char> read(program.values.size(), 0);
    read[loss] = 1;
    for (auto op = program.ops.rbegin(); op != program.ops.rend(); ++op)
        if (std::ranges::any_of(op->outputs, [&](ValueId id) { return read[id] != 0; }))
            for (const ValueId input : op->inputs) read[input] = 1;
    for (const LossTerm& term : tape.loss_terms)
        if (!read[term.value]) throw Error(program.value(term.value).origin, term.problem);
}

Program record(lua_State* L, const Traced& traced, const Recorded& recorded, const ProgramEntry& entry) {
    const Sizes sizes{entry.batch, entry.length};
    State& state = state_of(L);
    if (state.tape)
        fail(L, fmt::format("{} cannot be called inside another trace; call it at the top level of the script",
                            recorded.given_to));
    struct Current {
        State& state;
        ~Current() { state.tape = nullptr, state.recorded_again.clear(); }
    } current{state};
    Program start;
    start.name = traced.recipe.name;
    const auto tape = std::make_shared<Tape>(std::move(start));
    tape->training = entry.role == ProgramRole::train;
    tape->capacity = entry.capacity;
    if (tape->training) tape->first_capacities = traced.capacities;
    tape->declares = recorded.declares;
    state.tape = tape;
    state.recorded_again = other_sizes(traced, sizes);
    const Origin& origin = recorded.origin;
    const int top = lua_gettop(L);
    luaL_checkstack(L, 8, "a recorded function");
    lua_rawgeti(L, LUA_REGISTRYINDEX, recorded.function);
    push_batch(L, traced, tape, sizes);
    call_for(L, 1, 2, origin);
    const ValueId loss_sum = check_result(L, top + 1, recorded, *tape, recorded.sum);
    ValueId count = none;
    recorded.declared = {lua_isnil(L, top + 2), tape->capacities};
    if (recorded.declared.mean) {
        count = tape->builder.one(
            "full", {}, {{"shape", std::vector<int64_t>{}}, {"value", 1.0}, {"dtype", std::string("f32")}}, origin);
    } else {
        count = check_result(L, top + 2, recorded, *tape, "the count");
    }
    lua_settop(L, top);
    tape->builder.result("loss_sum", loss_sum, origin);
    tape->builder.result("count", count, origin);
    tape->use = TapeUse::closed;
    if (!tape->training) return *tape->program;
    require_next(*tape->program);
    require_terms(*tape, loss_sum);
    require_overflow(*tape, origin);
    return *tape->program;
}

}  // namespace

Program record_forward(lua_State* L, const Traced& traced, const ProgramEntry& entry, Declared& declared) {
    return record(L, traced, {traced.function, "o.trace", "the loss", traced.recipe.trace_origin, declared}, entry);
}

Program record_added(lua_State* L, const Traced& traced, size_t which, int64_t batch, Declared& declared) {
    const AddedProgram& added = traced.recipe.added[which];
    return record(L, traced, {traced.added[which], "program:metric", "the metric's sum", added.origin, declared, false},
                  {.role = ProgramRole::evaluate, .batch = batch});
}

void open_trace(lua_State* L) {
    const luaL_Reg functions[] = {{"param", guard<param>},        {"state", guard<model_state>},
                                  {"scope", guard<scope>},        {"step", guard<step>},
                                  {"training", guard<training>},  {"constant", guard<constant>},
                                  {"iota", guard<iota>},          {"array", guard<array>},
                                  {"fail", guard<fail_there>},    {"result", guard<result>},
                                  {"random", guard<random>},      {"loss_term", guard<loss_term>},
                                  {"choices", guard<choices_of>}, {nullptr, nullptr}};
    luaL_setfuncs(L, functions, 0);
    open_capacity(L);
}

void add_state_methods(lua_State* L) {
    const luaL_Reg methods[] = {{"next", guard<next>}, {nullptr, nullptr}};
    luaL_setfuncs(L, methods, 0);
}

}  // namespace orrery::lua
