// Implements o.capacity and o.overflow: programs that are recorded for several capacities, and say which is too small.
#include "lua/record/capacity.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/text.h"
#include "compile/capacity.h"
#include "ir/describe.h"
#include "lua/record/op_call.h"
#include "lua/state.h"

namespace orrery::lua {
namespace {

/// Whether two capacities print the same; programs are named by the printed value.
bool same_name(double a, double b) { return fmt::format("{:g}", a) == fmt::format("{:g}", b); }

/// Reads a list of numbers above 0, each larger than the one before.
std::vector<double> check_capacities(lua_State* L, int index) {
    check_table(L, index, "a list of capacities");
    std::vector<double> list;
    for (lua_Integer i = 1; lua_rawgeti(L, index, i) != LUA_TNIL; ++i) {
        const double number = lua_type(L, -1) == LUA_TNUMBER ? lua_tonumber(L, -1) : 0;
        if (!(number > (list.empty() ? 0 : list.back())) || std::isinf(number))
            bad_argument(L, index,
                         fmt::format("entry {} is {}, expected a number above {}", i,
                                     lua_type(L, -1) == LUA_TNUMBER ? fmt::format("{:g}", number) : type_text(L, -1),
                                     list.empty() ? 0 : list.back()));
        if (!list.empty() && same_name(number, list.back()))
            bad_argument(L, index,
                         fmt::format("entries {} and {} are both printed as {:g}, and programs are named by "
                                     "what is printed; remove one",
                                     i - 1, i, number));
        list.push_back(number);
        lua_pop(L, 1);
    }
    lua_pop(L, 1);
    size_t entries = 0;
    for (lua_pushnil(L); lua_next(L, index); lua_pop(L, 1)) ++entries;
    if (entries != list.size())
        bad_argument(L, index, fmt::format("the list has other entries than those from 1 to {}", list.size()));
    if (list.empty()) bad_argument(L, index, "the list is empty");
    return list;
}

std::string text_of(const std::vector<double>& list) {
    std::vector<std::string> texts;
    for (const double number : list) texts.push_back(fmt::format("{:g}", number));
    return "{ " + join(texts, ", ") + " }";
}

std::string text_of(const Capacities& lists) {
    std::vector<std::string> texts;
    for (const std::vector<double>& list : lists) texts.push_back(text_of(list));
    return join(texts, " and ");
}

/// Returns the tape of a model that is being recorded.
std::shared_ptr<Tape> forward_tape(lua_State* L, const char* function) {
    std::shared_ptr<Tape> tape = current_tape(L, function);
    if (tape->use != TapeUse::forward)
        fail(L, fmt::format("{}: can only be called inside the function given to o.trace", function));
    return tape;
}

/// The number of a list that a program of this capacity has: the smallest that is not below it, or the last.
double own_capacity(const std::vector<double>& list, double capacity) {
    const auto found = std::lower_bound(list.begin(), list.end(), capacity);
    return found == list.end() ? list.back() : *found;
}

/// native.capacity { 1, 1.5, 2 } -> the capacity for which this program is recorded. Calls with different lists get
/// the number of their own list that is nearest to it from above.
int capacity(lua_State* L) {
    const std::shared_ptr<Tape> tape = forward_tape(L, "o.capacity");
    const std::vector<double> list = check_capacities(L, 1);
    const Capacities& first = tape->first_capacities;
    if (!first.empty() && std::ranges::find(first, list) == first.end())
        bad_argument(L, 1,
                     fmt::format("the list {} is not one of the first trace, {}; the function is traced again for each "
                                 "capacity and batch size, and must give the same lists each time",
                                 text_of(list), text_of(first)));
    if (std::ranges::find(tape->capacities, list) == tape->capacities.end()) tape->capacities.push_back(list);
    const std::vector<double> all = union_of(tape->capacities);
    for (size_t i = 1; i < all.size(); ++i)
        if (same_name(all[i], all[i - 1]))
            bad_argument(L, 1,
                         fmt::format("two capacities are too close: both print as {:g}, which names their programs\n  "
                                     "give both lists the same number",
                                     all[i]));
    if (tape->sized.line == 0) tape->sized = where(L);
    lua_pushnumber(L, tape->capacity > 0 ? own_capacity(list, tape->capacity) : list.back());
    return 1;
}

/// Returns the list of o.capacity that a load belongs to: the one at stack index 3, or the program's only one.
std::vector<double> list_of_load(lua_State* L, const Tape& tape) {
    if (!lua_isnoneornil(L, 3)) {
        std::vector<double> list = check_capacities(L, 3);
        if (std::ranges::find(tape.capacities, list) == tape.capacities.end())
            bad_argument(L, 3,
                         fmt::format("the list {} was not given to o.capacity, which has {}", text_of(list),
                                     text_of(tape.capacities)));
        return list;
    }
    if (tape.capacities.size() > 1)
        fail(L, fmt::format("o.overflow: there are several lists of capacities, {}\n  give the one of this load as the "
                            "third argument",
                            text_of(tape.capacities)));
    return tape.capacities.front();
}

/// Calls limit(capacity), the function at stack index 2.
double limit_of(lua_State* L, double capacity) {
    lua_pushvalue(L, 2);
    lua_pushnumber(L, capacity);
    lua_call(L, 1, 1);
    if (lua_type(L, -1) != LUA_TNUMBER || !(lua_tonumber(L, -1) >= 0))
        bad_argument(L, 2,
                     fmt::format("limit({:g}) is {}, expected a number of at least 0", capacity, type_text(L, -1)));
    const double limit = lua_tonumber(L, -1);
    lua_pop(L, 1);
    return limit;
}

/// native.overflow(load, limit [, list]): the step overflows if an element of `load` is above limit(capacity). Records
/// the sum of what is above it, for this capacity and the next smaller one.
int overflow(lua_State* L) {
    const std::shared_ptr<Tape> tape = forward_tape(L, "o.overflow");
    const ValueId load = check_own(L, 1, tape);
    check_function(L, 2);
    lua_settop(L, 3);
    if (tape->capacities.empty()) fail(L, "o.overflow: the program has no capacity; call o.capacity first");
    if (!tape->training)
        fail(L, "o.overflow: only a train step can run again; where o.training() is false, let the op hold everything");
    const std::vector<double> list = list_of_load(L, *tape);
    const Value& value = tape->program->value(load);
    const TensorType type = value.type;
    const bool has_name = !value.name.empty();
    if (type.shape.empty() || (type.dtype != DType::i32 && type.dtype != DType::f32))
        bad_argument(L, 1, fmt::format("{} is not [..., n], i32 or f32", describe(*tape->program, load)));
    const Origin origin = where(L);
    Builder& builder = tape->builder;
    const auto one = [&](std::string_view kind, std::vector<ValueId> inputs, Attributes attributes = {}) {
        state_of(L).charge_op();
        return builder.one(kind, std::move(inputs), std::move(attributes), origin);
    };
    // A value of its own: `load` may have a name, and two loads of a scope have two.
    ValueId given = load;
    if (type.dtype != DType::f32)
        given = one("cast", {given}, {{"dtype", std::string("f32")}});
    else if (has_name)
        given = one("scale", {given}, {{"by", 1.0}});
    std::string name = load_name(builder.scope(), 1);
    for (int count = 2; tape->program->find(name); ++count) name = load_name(builder.scope(), count);
    builder.name(given, name, origin);
    std::vector<int64_t> dims(tape->program->value(given).type.shape.size());
    std::iota(dims.begin(), dims.end(), 0);
    const auto above = [&](double limit) {
        const ValueId more = one("sub", {given, constant(L, *tape, limit, DType::f32)});
        if (!tape->program->find(name + std::string(above_ending)))  // the first is of this capacity
            builder.name(more, name + std::string(above_ending), origin);
        const ValueId excess = one("maximum", {more, constant(L, *tape, 0, DType::f32)});
        return one("sum", {excess}, {{"dims", dims}});
    };
    const std::vector<double> all =
        union_of(tape->first_capacities.empty() ? Capacities{list} : tape->first_capacities);
    const size_t at = tape->capacity > 0 ? std::ranges::lower_bound(all, tape->capacity) - all.begin() : all.size() - 1;
    const double own = own_capacity(list, all[at]), smaller = own_capacity(list, all[at > 0 ? at - 1 : 0]);
    const double limit = limit_of(L, own), lower = limit_of(L, smaller);
    if (lower > limit)
        bad_argument(L, 2,
                     fmt::format("limit({:g}) = {:g} is more than limit({:g}) = {:g}: a larger capacity holds no less",
                                 smaller, lower, own, limit));
    const ValueId now = above(limit);
    const ValueId below = smaller == own ? now : above(lower);
    tape->overflowing.push_back(list);
    if (!tape->declares) return 0;
    const auto number = tape->overflows++;
    builder.result(fmt::format("{}:{}", overflow_name, number), now, origin);
    builder.result(fmt::format("{}:{}", below_name, number), below, origin);
    return 0;
}

/// Takes the results NAME:0, NAME:1, ... out of the program and returns their sum; none if there are none.
ValueId sum_of(Tape& tape, std::string_view name, const Origin& origin) {
    const std::string prefix = fmt::format("{}:", name);
    std::vector<Result>& results = tape.program->results;
    ValueId sum = none;
    for (const Result& result : results) {
        if (!result.name.starts_with(prefix)) continue;
        sum = sum == none ? result.value : tape.builder.one("add", {sum, result.value}, {}, origin);
    }
    std::erase_if(results, [&](const Result& result) { return result.name.starts_with(prefix); });
    if (sum != none) tape.builder.result(name, sum, origin);
    return sum;
}

}  // namespace

std::vector<double> union_of(const Capacities& lists) {
    std::vector<double> all;
    for (const std::vector<double>& list : lists) all.insert(all.end(), list.begin(), list.end());
    std::ranges::sort(all);
    all.erase(std::ranges::unique(all).begin(), all.end());
    return all;
}

void refuse_named_load(const Tape& tape) {
    if (tape.named_load == none) return;
    const Value& value = tape.program->value(tape.named_load);
    throw Error(value.origin, fmt::format("{} is named as the loads of o.overflow are; give it another name",
                                          describe(*tape.program, tape.named_load)));
}

void require_overflow(const Tape& tape, const Origin& origin) {
    if (tape.capacities.empty()) return;
    refuse_named_load(tape);
    for (const std::vector<double>& list : tape.capacities) {
        if (std::ranges::find(tape.overflowing, list) != tape.overflowing.end()) continue;
        throw Error(tape.sized.line > 0 ? tape.sized : origin,
                    fmt::format("o.capacity {} without o.overflow: no step could overflow, so the run would always "
                                "have the smallest capacity\n  call o.overflow(load, limit, list) in each trace where "
                                "o.training() is true, or use a number in place of o.capacity",
                                text_of(list)));
    }
}

ValueId sum_overflow(Tape& tape, const Origin& origin) {
    sum_of(tape, below_name, origin);
    return sum_of(tape, overflow_name, origin);
}

void open_capacity(lua_State* L) {
    const luaL_Reg functions[] = {{"capacity", guard<capacity>}, {"overflow", guard<overflow>}, {nullptr, nullptr}};
    luaL_setfuncs(L, functions, 0);
}

}  // namespace orrery::lua
