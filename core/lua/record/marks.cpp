// Implements placements (R, P, S), and the methods with which strategies mark values.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/suggest.h"
#include "base/text.h"
#include "ir/describe.h"
#include "ir/op.h"
#include "lua/fields.h"
#include "lua/record/guard.h"
#include "lua/record/marks.h"
#include "lua/state.h"
#include "orrery/strategy.h"

namespace orrery::lua {

Tape& annotating(lua_State* L, const std::shared_ptr<Tape>& tape, std::string_view function) {
    if (tape->use != TapeUse::annotate)
        fail(L, fmt::format("{}: can only be called inside a strategy's function, see strategy.define", function));
    return *tape;
}

Origin mark_origin(const Tape& tape) { return {tape.who, tape.asked.file, tape.asked.line, tape.asked.column}; }

namespace {

/// A placement: R, P, or S with a dim, which is looked up in the marked value.
struct Place {
    Placement::Kind kind = Placement::Kind::replicate;
    std::string name;
    int64_t number = 0;  ///< number of the dim, from 1, if `name` is empty
};

/// Values that a strategy marks together, such as the states of a param.
struct Group {
    std::shared_ptr<Tape> tape;
    std::vector<ValueId> ids;
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

namespace {

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

/// Marks values with the table at stack index 2: { axis = S(dim), keep = , optional = }.
void mark(lua_State* L, const std::shared_ptr<Tape>& shared, const std::vector<ValueId>& ids, Mark::What what) {
    const std::string function = what == Mark::What::store ? "store" : "use";
    Tape& tape = annotating(L, shared, function);
    check_table(L, 2, "a table { axis = placement }");
    lua_getfield(L, 2, "optional");
    const bool optional = lua_toboolean(L, -1);
    lua_getfield(L, 2, "keep");
    const std::string keep = lua_isnil(L, -1) ? "step" : check_text(L, -1);
    lua_pop(L, 2);
    const std::map<std::string, Keep> lives = {
        {"step", Keep::step}, {"fragment", Keep::fragment}, {"part", Keep::part}};
    if (!lives.contains(keep))
        fail(L, fmt::format("{}: keep is {}, expected \"step\", \"fragment\" or \"part\"", function, quote(keep)));
    push_sorted_keys(L, 2);
    const int keys = lua_gettop(L);
    for (lua_Integer i = 1; lua_rawgeti(L, keys, i) != LUA_TNIL; ++i) {
        if (lua_type(L, -1) != LUA_TSTRING)
            fail(L, fmt::format("{}: each mark must name its axis: write {{ dp = S \"batch\" }}", function));
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
                tape.program->use(id, axis, placement, mark_origin(tape), lives.at(keep), optional);
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
    if (x.tape->use != TapeUse::update && x.tape->use != TapeUse::annotate)
        fail(L, fmt::format("{}: can only be called with a param of an optimizer's or a strategy's function, while the "
                            "function runs",
                            function));
    if (x.value().role == Role::param) return;
    fail(L, fmt::format("{}: {} is no param", function, describe(*x.tape->program, x.id)));
}

/// p:grad() -> the gradient of a param; for an optimizer, without the loss scale (guard.h). If the program computes no
/// gradients (evaluation), a strategy gets an empty group, which ignores marks, and an optimizer nil.
int grad(lua_State* L) {
    const Symbol& x = check<Symbol>(L, 1);
    check_param(L, x, "grad");
    const bool updates = x.tape->use == TapeUse::update;
    const ValueId id = updates ? gradient_of(L, x.tape, x.id) : x.tape->program->grad_of(x.id);
    if (id != none)
        push_symbol(L, x.tape, id);
    else if (x.tape->use == TapeUse::annotate)
        push_object(L, Group{x.tape, {}});
    else
        lua_pushnil(L);
    return 1;
}

/// p:grad_terms() -> the values whose sum is the gradient.
int grad_terms(lua_State* L) {
    const Symbol& x = check<Symbol>(L, 1);
    check_param(L, x, "grad_terms");
    push_object(L, Group{x.tape, x.tape->program->grad_terms(x.id)});
    return 1;
}

int state(lua_State* L) {
    const Symbol& x = check<Symbol>(L, 1);
    check_param(L, x, "state");
    push_object(L, Group{x.tape, x.tape->program->states_of(x.id)});
    return 1;
}

/// p:first_dim_divisible_by(n) -> number, from 1, of the first dim of p whose size, divided by the axes that split it
/// already, is divisible by n; nil when there is none.
int first_dim_divisible_by(lua_State* L) {
    const Symbol& x = check<Symbol>(L, 1);
    const int64_t n = check_integer(L, 2);
    if (n < 1) bad_argument(L, 2, fmt::format("at least 1 expected, got {}", n));
    const Tape& tape = annotating(L, x.tape, "first_dim_divisible_by");
    const auto dim = tape.program->first_dim_divisible_by(x.id, n, *tape.mesh);
    if (dim)
        lua_pushinteger(L, static_cast<lua_Integer>(*dim + 1));
    else
        lua_pushnil(L);
    return 1;
}

/// x:splits() -> { { axis = , dim = , gathered = }, ... }, with dims from 1: in a strategy, of the store marks so far
/// that split x, in order, with whether a use mark is for the same axis; in a decomposition, of the layout in which the
/// op reads x.
int splits(lua_State* L) {
    const Symbol& x = check<Symbol>(L, 1);
    lua_newtable(L);
    lua_Integer count = 0;
    const auto push_split = [&](const std::string& axis, int dim, bool gathered = false) {
        lua_createtable(L, 0, 2);
        push(L, axis);
        lua_setfield(L, -2, "axis");
        lua_pushinteger(L, static_cast<lua_Integer>(dim + 1));
        lua_setfield(L, -2, "dim");
        lua_pushboolean(L, gathered);
        lua_setfield(L, -2, "gathered");
        lua_rawseti(L, -2, ++count);
    };
    if (x.tape->use == TapeUse::decompose && x.tape->at) {
        const OpLayouts& at = *x.tape->at;
        const auto input = std::find(at.op.inputs.begin(), at.op.inputs.end(), x.id);
        const auto splits =
            (input == at.op.inputs.end() ? x.value().layout : at.inputs[input - at.op.inputs.begin()]).splits();
        for (size_t dim = 0; dim < splits.size(); ++dim)
            for (const AxisId axis : splits[dim])
                if (at.mesh.size(axis) > 1) push_split(at.mesh.axis(axis).name, static_cast<int>(dim));
        return 1;
    }
    const std::vector<Mark>& marks = annotating(L, x.tape, "splits").program->marks();
    for (const Mark& mark : marks) {
        const auto gathers = [&](const Mark& other) {
            return other.value == x.id && other.what == Mark::What::use && other.axis == mark.axis;
        };
        if (mark.value == x.id && mark.what == Mark::What::store && mark.placement.kind == Placement::Kind::split)
            push_split(mark.axis, mark.placement.dim, std::ranges::any_of(marks, gathers));
    }
    return 1;
}

/// x:readers() -> the ops that read x, in order, each as program:ops() has it.
int readers(lua_State* L) {
    const Symbol& x = check<Symbol>(L, 1);
    push_ops(L, x.tape, "readers", [id = x.id](const Op& op) {
        return std::find(op.inputs.begin(), op.inputs.end(), id) != op.inputs.end();
    });
    return 1;
}

/// p:has_low_copy() -> whether forward ops read a copy of the param in lower precision.
int has_low_copy(lua_State* L) {
    const Symbol& x = check<Symbol>(L, 1);
    check_param(L, x, "has_low_copy");
    lua_pushboolean(L, x.tape->program->params_with_low_copies()[static_cast<size_t>(x.id)]);
    return 1;
}

/// S "batch" or S(1): the placement that splits the dim with this name or number.
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

}  // namespace

void add_mark_methods(lua_State* L) {
    const luaL_Reg methods[] = {{"store", guard<store>},
                                {"use", guard<use>},
                                {"grad", guard<grad>},
                                {"grad_terms", guard<grad_terms>},
                                {"state", guard<state>},
                                {"first_dim_divisible_by", guard<first_dim_divisible_by>},
                                {"splits", guard<splits>},
                                {"readers", guard<readers>},
                                {"has_low_copy", guard<has_low_copy>},
                                {nullptr, nullptr}};
    luaL_setfuncs(L, methods, 0);
}

void open_marks(lua_State* L) {
    const luaL_Reg group[] = {{"store", guard<group_mark<Mark::What::store>>},
                              {"use", guard<group_mark<Mark::What::use>>},
                              {nullptr, nullptr}};
    add_class<Group>(L, group);
    const luaL_Reg nothing[] = {{nullptr, nullptr}};
    new_class<Place>(L, nothing);
    lua_pop(L, 1);
    open_annotated(L);
    push_object(L, Place{});
    lua_setfield(L, -2, "R");
    push_object(L, Place{Placement::Kind::partial, "", 0});
    lua_setfield(L, -2, "P");
    lua_pushcfunction(L, guard<split>);
    lua_setfield(L, -2, "S");
}

}  // namespace orrery::lua
