// What a strategy sees: the program, the mesh, placements, and the marks that values take.
#include <fmt/format.h>

#include <algorithm>

#include "base/suggest.h"
#include "base/text.h"
#include "ir/describe.h"
#include "ir/op.h"
#include "layout/zero.h"
#include "lua/fields.h"
#include "lua/marks.h"
#include "lua/state.h"
#include "orrery/strategy.h"

namespace orrery::lua {

namespace {

/// R, P, or S with a dim that is looked up in the value that is marked.
struct Place {
    Placement::Kind kind = Placement::Kind::replicate;
    std::string name;
    int64_t number = 0;  ///< from 1, when the name is empty
};

/// Several values that are marked alike: the states of a param.
struct Group {
    std::shared_ptr<Tape> tape;
    std::vector<ValueId> ids;
};

struct AnnotatedProgram {
    std::shared_ptr<Tape> tape;
};

struct MeshView {
    Mesh mesh;
};

}  // namespace

template <>
struct Class<Place> {
    static constexpr const char* name = "orrery.placement";
    static constexpr const char* what = "a placement";
};
template <>
struct Class<Group> {
    static constexpr const char* name = "orrery.group";
    static constexpr const char* what = "the states of a param";
};
template <>
struct Class<AnnotatedProgram> {
    static constexpr const char* name = "orrery.annotated";
    static constexpr const char* what = "a program";
};
template <>
struct Class<MeshView> {
    static constexpr const char* name = "orrery.mesh";
    static constexpr const char* what = "a mesh";
};

namespace {

Tape& annotating(lua_State* L, const std::shared_ptr<Tape>& tape, std::string_view function) {
    if (tape->use != TapeUse::annotate)
        fail(L, fmt::format("{}: only inside of a strategy's function, see strategy.define", function));
    return *tape;
}

Origin mark_origin(const Tape& tape) { return {tape.who, tape.asked.file, tape.asked.line, tape.asked.column}; }

Placement resolve(lua_State* L, const Place& place, const Tape& tape, ValueId id) {
    if (place.kind == Placement::Kind::partial) return Placement::partial(ReduceOp::sum);
    if (place.kind == Placement::Kind::replicate) return Placement::replicated();
    const auto rank = static_cast<int64_t>(tape.program->value(id).dims.size());
    if (!place.name.empty()) {
        if (const auto dim = tape.program->dim(id, place.name)) return Placement::split(*dim);
        std::vector<std::string> names = tape.program->value(id).dims;
        std::erase(names, "");
        fail(L, fmt::format("{} has no dim {}{}", describe(*tape.program, id), quote(place.name),
                            choices("its dims", place.name, names)));
    }
    if (place.number > rank)
        fail(L,
             fmt::format("{} has no dim {}: dims count from 1 to {}", describe(*tape.program, id), place.number, rank));
    return Placement::split(static_cast<int>(place.number - 1));
}

/// Marks the values with the table at 2: { axis = S(dim), keep = , optional = }.
void mark(lua_State* L, const std::shared_ptr<Tape>& shared, const std::vector<ValueId>& ids, Mark::What what) {
    const std::string function = what == Mark::What::store ? "store" : "use";
    Tape& tape = annotating(L, shared, function);
    check_table(L, 2, "a table { axis = placement }");
    lua_getfield(L, 2, "optional");
    const bool optional = lua_toboolean(L, -1);
    lua_getfield(L, 2, "keep");
    const std::string keep = lua_isnil(L, -1) ? "step" : check_text(L, -1);
    lua_pop(L, 2);
    if (keep != "step" && keep != "fragment")
        fail(L, fmt::format("{}: keep is {}, expected \"step\" or \"fragment\"", function, quote(keep)));
    push_sorted_keys(L, 2);
    const int keys = lua_gettop(L);
    for (lua_Integer i = 1; lua_rawgeti(L, keys, i) != LUA_TNIL; ++i) {
        if (lua_type(L, -1) != LUA_TSTRING)
            fail(L, fmt::format("{}: axes have names: write {{ dp = S \"batch\" }}", function));
        const std::string axis = check_text(L, -1);
        if (axis == "keep" || axis == "optional") {
            lua_pop(L, 1);
            continue;
        }
        lua_rawget(L, 2);
        const Place* place = test<Place>(L, -1);
        if (!place) fail(L, fmt::format("{}: {} is {}, expected R, P or S(dim)", function, axis, type_text(L, -1)));
        for (const ValueId id : ids) {
            const Placement placement = resolve(L, *place, tape, id);
            if (what == Mark::What::store)
                tape.program->store(id, axis, placement, mark_origin(tape), optional);
            else
                tape.program->use(id, axis, placement, mark_origin(tape),
                                  keep == "fragment" ? Keep::fragment : Keep::step, optional);
        }
        lua_pop(L, 1);
    }
    lua_settop(L, 1);
}

int store(lua_State* L) {
    const Symbol& x = check<Symbol>(L, 1);
    mark(L, x.tape, {x.id}, Mark::What::store);
    return 1;
}

int use(lua_State* L) {
    const Symbol& x = check<Symbol>(L, 1);
    const auto& grads = x.tape->program->grads();
    const bool grad = std::any_of(grads.begin(), grads.end(), [&](const auto& pair) { return pair.second == x.id; });
    if (x.value().role != Role::param && !grad)
        fail(L, fmt::format("use: {} is no param or gradient; other values rest as they are read: mark store",
                            describe(*x.tape->program, x.id)));
    mark(L, x.tape, {x.id}, Mark::What::use);
    return 1;
}

template <Mark::What what>
int group_mark(lua_State* L) {
    const Group& group = check<Group>(L, 1);
    mark(L, group.tape, group.ids, what);
    return 1;
}

void check_param(lua_State* L, const Symbol& x, std::string_view function) {
    if (x.value().role == Role::param) return;
    fail(L, fmt::format("{}: {} is no param", function, describe(*x.tape->program, x.id)));
}

/// p:grad() -> the gradient of a param. Where the program computes none (evaluation), a strategy gets a group of no
/// values, so that its marks do nothing, and an optimizer nil.
int grad(lua_State* L) {
    const Symbol& x = check<Symbol>(L, 1);
    check_param(L, x, "grad");
    const ValueId id = x.tape->program->grad_of(x.id);
    if (id != none)
        push_symbol(L, x.tape, id);
    else if (x.tape->use == TapeUse::annotate)
        push_object(L, Group{x.tape, {}});
    else
        lua_pushnil(L);
    return 1;
}

/// p:grad_terms() -> the values that the gradient is a sum of.
int grad_terms(lua_State* L) {
    const Symbol& x = check<Symbol>(L, 1);
    check_param(L, x, "grad_terms");
    push_object(L, Group{x.tape, terms_of_gradient(*x.tape->program, x.id)});
    return 1;
}

int state(lua_State* L) {
    const Symbol& x = check<Symbol>(L, 1);
    check_param(L, x, "state");
    push_object(L, Group{x.tape, x.tape->program->states_of(x.id)});
    return 1;
}

/// p:first_dim_divisible_by(n) -> the dim's number, from 1, behind the axes that split it already; nil when there is
/// none.
int first_dim_divisible_by(lua_State* L) {
    const Symbol& x = check<Symbol>(L, 1);
    const int64_t n = check_integer(L, 2);
    if (n < 1) bad_argument(L, 2, fmt::format("at least 1 expected, got {}", n));
    const Tape& tape = annotating(L, x.tape, "first_dim_divisible_by");
    const auto dim = first_dim_to_split(*tape.program, *tape.mesh, x.id, n);
    if (dim)
        lua_pushinteger(L, static_cast<lua_Integer>(*dim + 1));
    else
        lua_pushnil(L);
    return 1;
}

/// p:has_low_copy() -> whether forward ops read a copy of the param of lower precision.
int has_low_copy(lua_State* L) {
    const Symbol& x = check<Symbol>(L, 1);
    check_param(L, x, "has_low_copy");
    lua_pushboolean(L, params_with_low_copies(*x.tape->program)[static_cast<size_t>(x.id)]);
    return 1;
}

/// S "batch" or S(1): split that dim.
int split(lua_State* L) {
    if (lua_type(L, 1) == LUA_TSTRING) {
        push_object(L, Place{Placement::Kind::split, check_text(L, 1), 0});
        return 1;
    }
    const int64_t number = check_integer(L, 1);
    if (number < 1) bad_argument(L, 1, "dims count from 1, or are named");
    push_object(L, Place{Placement::Kind::split, "", number});
    return 1;
}

// ---- the program that is annotated

/// Activations, for Role::temporary: what forward ops make of floats.
bool wanted(const Program& program, const Value& value, Role role) {
    if (value.role != role) return false;
    if (role != Role::temporary) return true;
    return value.op != none && program.op(value.op).phase == Phase::forward && is_float(value.type.dtype);
}

/// Upvalues: the program, how many values were visited.
template <Role role>
int next_value(lua_State* L) {
    const AnnotatedProgram& program = check<AnnotatedProgram>(L, lua_upvalueindex(1));
    const auto& values = program.tape->program->values;
    auto at = static_cast<size_t>(lua_tointeger(L, lua_upvalueindex(2)));
    while (at < values.size() && !wanted(*program.tape->program, values[at], role)) ++at;
    if (at >= values.size()) return 0;
    lua_pushinteger(L, static_cast<lua_Integer>(at + 1));
    lua_replace(L, lua_upvalueindex(2));
    push_symbol(L, program.tape, static_cast<ValueId>(at));
    return 1;
}

template <Role role>
int values(lua_State* L) {
    check<AnnotatedProgram>(L, 1);
    lua_pushvalue(L, 1);
    lua_pushinteger(L, 0);
    lua_pushcclosure(L, guard<next_value<role>>, 2);
    return 1;
}

Tape& annotated(lua_State* L, std::string_view function) {
    return annotating(L, check<AnnotatedProgram>(L, 1).tape, function);
}

int find(lua_State* L) {
    const std::shared_ptr<Tape> tape = check<AnnotatedProgram>(L, 1).tape;
    const auto id = tape->program->find(check_text(L, 2));
    if (id)
        push_symbol(L, tape, *id);
    else
        lua_pushnil(L);
    return 1;
}

/// program:scopes() -> the scopes of forward ops, in order.
int scopes(lua_State* L) {
    const Program& program = *annotated(L, "scopes").program;
    std::vector<std::string> names;
    for (const Op& op : program.ops) {
        if (op.phase != Phase::forward || (!names.empty() && names.back() == op.scope)) continue;
        if (std::find(names.begin(), names.end(), op.scope) == names.end()) names.push_back(op.scope);
    }
    push(L, names);
    return 1;
}

int stage(lua_State* L) {
    Tape& tape = annotated(L, "stage");
    const int64_t number = check_integer(L, 3);
    if (number < 0) bad_argument(L, 3, "stages count from 0");
    tape.program->stage(check_text(L, 2), static_cast<int>(number), mark_origin(tape));
    return 0;
}

/// program:pipeline { axis = , schedule = , chunks = 1 }
int pipeline(lua_State* L) {
    Tape& tape = annotated(L, "pipeline");
    Fields fields(L, 2, "pipeline");
    Pipeline asked;
    asked.axis = fields.text("axis").value_or("pp");
    asked.schedule = fields.text("schedule").value_or("1f1b");
    asked.chunks = static_cast<int>(fields.integer("chunks", 1).value_or(1));
    fields.finish();
    asked.origin = mark_origin(tape);
    tape.program->pipeline(std::move(asked));
    return 0;
}

/// program:layers() -> { { scope = , flops = }, ... }: what comes before the layers, each of them, what comes behind.
int program_layers(lua_State* L) {
    const Tape& tape = annotated(L, "layers");
    const std::vector<Layer> row = layers(*tape.program);
    lua_createtable(L, static_cast<int>(row.size()), 0);
    for (size_t i = 0; i < row.size(); ++i) {
        lua_createtable(L, 0, 2);
        push(L, row[i].scope);
        lua_setfield(L, -2, "scope");
        lua_pushnumber(L, row[i].flops);
        lua_setfield(L, -2, "flops");
        lua_rawseti(L, -2, static_cast<lua_Integer>(i + 1));
    }
    return 1;
}

/// program:recompute(scope [, { "gelu", "layernorm" }]): all ops below the scope, or those of some kinds.
int recompute(lua_State* L) {
    Tape& tape = annotated(L, "recompute");
    std::vector<std::string> kinds;
    if (!lua_isnoneornil(L, 3)) {
        check_table(L, 3, "a list of kinds of ops");
        for (lua_Integer i = 1; lua_rawgeti(L, 3, i) != LUA_TNIL; ++i, lua_pop(L, 1)) {
            kinds.push_back(check_text(L, -1));
            op_def(kinds.back(), mark_origin(tape));
        }
        if (kinds.empty()) bad_argument(L, 3, "a list of kinds of ops expected, got none");
    }
    tape.program->recompute(check_text(L, 2), mark_origin(tape), kinds);
    return 0;
}

/// program:note(value, text): listed by `orrery check`.
int note(lua_State* L) {
    Tape& tape = annotated(L, "note");
    tape.program->note(check<Symbol>(L, 2).id, check_text(L, 3), mark_origin(tape));
    return 0;
}

int microbatches(lua_State* L) {
    Tape& tape = annotated(L, "microbatches");
    const int64_t count = check_integer(L, 2);
    if (count < 1) bad_argument(L, 2, fmt::format("at least 1 expected, got {}", count));
    tape.program->microbatches(count, mark_origin(tape));
    return 0;
}

/// program:bucket(axis, mib): collectives of the axis are joined in messages of this size.
int bucket(lua_State* L) {
    Tape& tape = annotated(L, "bucket");
    const double mib = check_number(L, 3);
    if (!(mib >= 0)) bad_argument(L, 3, fmt::format("0 MiB or more expected, got {}", mib));
    tape.program->bucket(check_text(L, 2), static_cast<int64_t>(mib * (1 << 20)), mark_origin(tape));
    return 0;
}

int mesh_size(lua_State* L) {
    lua_pushinteger(L, check<MeshView>(L, 1).mesh.size(check_text(L, 2)));
    return 1;
}

int mesh_ranks(lua_State* L) {
    lua_pushinteger(L, check<MeshView>(L, 1).mesh.ranks());
    return 1;
}

int mesh_text(lua_State* L) {
    push(L, check<MeshView>(L, 1).mesh.text());
    return 1;
}

template <class T>
void add_class(lua_State* L, const luaL_Reg* methods) {
    const luaL_Reg nothing[] = {{nullptr, nullptr}};
    new_class<T>(L, nothing);
    lua_newtable(L);
    luaL_setfuncs(L, methods, 0);
    lua_setfield(L, -2, "__index");
    lua_pop(L, 1);
}

}  // namespace

void push_annotated(lua_State* L, const std::shared_ptr<Tape>& tape) { push_object(L, AnnotatedProgram{tape}); }
void push_mesh(lua_State* L, const Mesh& mesh) { push_object(L, MeshView{mesh}); }

void add_mark_methods(lua_State* L) {
    const luaL_Reg methods[] = {{"store", guard<store>},
                                {"use", guard<use>},
                                {"grad", guard<grad>},
                                {"grad_terms", guard<grad_terms>},
                                {"state", guard<state>},
                                {"first_dim_divisible_by", guard<first_dim_divisible_by>},
                                {"has_low_copy", guard<has_low_copy>},
                                {nullptr, nullptr}};
    luaL_setfuncs(L, methods, 0);
}

void open_marks(lua_State* L) {
    const luaL_Reg group[] = {{"store", guard<group_mark<Mark::What::store>>},
                              {"use", guard<group_mark<Mark::What::use>>},
                              {nullptr, nullptr}};
    add_class<Group>(L, group);
    const luaL_Reg program[] = {{"params", guard<values<Role::param>>},
                                {"inputs", guard<values<Role::input>>},
                                {"activations", guard<values<Role::temporary>>},
                                {"find", guard<find>},
                                {"scopes", guard<scopes>},
                                {"stage", guard<stage>},
                                {"pipeline", guard<pipeline>},
                                {"layers", guard<program_layers>},
                                {"recompute", guard<recompute>},
                                {"microbatches", guard<microbatches>},
                                {"bucket", guard<bucket>},
                                {"note", guard<note>},
                                {nullptr, nullptr}};
    add_class<AnnotatedProgram>(L, program);
    const luaL_Reg mesh[] = {
        {"size", guard<mesh_size>}, {"ranks", guard<mesh_ranks>}, {"text", guard<mesh_text>}, {nullptr, nullptr}};
    add_class<MeshView>(L, mesh);
    const luaL_Reg nothing[] = {{nullptr, nullptr}};
    new_class<Place>(L, nothing);
    lua_pop(L, 1);
    push_object(L, Place{});
    lua_setfield(L, -2, "R");
    push_object(L, Place{Placement::Kind::partial, "", 0});
    lua_setfield(L, -2, "P");
    lua_pushcfunction(L, guard<split>);
    lua_setfield(L, -2, "S");
}

}  // namespace orrery::lua
