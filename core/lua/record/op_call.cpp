// Makes every op a method of values; operands and attributes have the names that the op declares.
#include "lua/record/op_call.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/suggest.h"
#include "base/text.h"
#include "ir/describe.h"
#include "ir/op.h"
#include "ir/plugin_ops.h"
#include "lua/state.h"

namespace orrery::lua {

ValueId constant(lua_State* L, Tape& tape, double number, DType dtype) {
    Attributes attributes{{"shape", std::vector<int64_t>{}}, {"value", number}, {"dtype", std::string(name_of(dtype))}};
    state_of(L).charge_op();
    return tape.builder.one("full", {}, std::move(attributes), where(L));
}

int record(lua_State* L, const std::shared_ptr<Tape>& tape, std::string_view kind, std::vector<ValueId> inputs,
           Attributes attributes, const std::vector<Builder::DimNames>& names) {
    state_of(L).charge_op();
    const std::vector<ValueId> outputs =
        tape->builder.add(kind, std::move(inputs), std::move(attributes), where(L), names);
    luaL_checkstack(L, static_cast<int>(outputs.size()), "too many results");
    for (const ValueId id : outputs) push_symbol(L, tape, id);
    return static_cast<int>(outputs.size());
}

bool names_dims(std::string_view attribute) { return attribute == "dim" || attribute == "dims" || attribute == "perm"; }

Attribute attribute_at(lua_State* L, int index, const OpDef& def, const AttributeDef& attribute, const Symbol& x) {
    index = lua_absindex(L, index);
    const auto wrong = [&](std::string_view what) {
        fail(L, fmt::format("{}: {} is {}, expected {}", def.name, attribute.name, type_text(L, index), what));
    };
    switch (attribute.kind) {
        case AttributeDef::Kind::flag:
            if (!lua_isboolean(L, index)) wrong("true or false");
            return static_cast<bool>(lua_toboolean(L, index));
        case AttributeDef::Kind::integer: {
            if (names_dims(attribute.name)) return static_cast<int64_t>(check_dim(L, index, x));
            if (!lua_isinteger(L, index)) wrong("an integer");
            return static_cast<int64_t>(lua_tointeger(L, index));
        }
        case AttributeDef::Kind::number:
            if (lua_type(L, index) != LUA_TNUMBER || std::isnan(lua_tonumber(L, index))) wrong("a number");
            return static_cast<double>(lua_tonumber(L, index));
        case AttributeDef::Kind::text:
            if (lua_type(L, index) != LUA_TSTRING) wrong("a text");
            return check_text(L, index);
        case AttributeDef::Kind::integers: break;
    }
    std::vector<int64_t> list;
    if (names_dims(attribute.name) && !lua_istable(L, index)) return std::vector<int64_t>{check_dim(L, index, x)};
    if (!lua_istable(L, index)) wrong("a list");
    for (lua_Integer i = 1; lua_rawgeti(L, index, i) != LUA_TNIL; ++i) {
        if (names_dims(attribute.name))
            list.push_back(check_dim(L, -1, x));
        else if (lua_isinteger(L, -1))
            list.push_back(lua_tointeger(L, -1));
        else
            wrong("a list of integers");
        lua_pop(L, 1);
    }
    lua_pop(L, 1);
    return list;
}

namespace {

std::string_view plain_name(std::string_view operand) { return operand.substr(0, operand.find_first_of("?.")); }

class Call {
public:
    Call(lua_State* L, const OpDef& def) : L_(L), def_(def), x_(check<Symbol>(L, 1)) {
        recording(L, x_);
        add_operand(1);
    }

    int run() {
        const int top = lua_gettop(L_);
        for (int i = 2; i <= top; ++i) {
            if (i == top && lua_istable(L_, i) && !list_attribute_next())
                named(i);
            else
                positional(i);
        }
        add_given();
        const auto least = static_cast<size_t>(
            std::ranges::count_if(def_.operands, [](std::string_view o) { return !o.ends_with("?"); }));
        if (operands_.size() < least)
            fail(L_, fmt::format("bad argument #{} '{}' to '{}' (a value expected, got nothing)", operands_.size(),
                                 plain_name(def_.operands[operands_.size()]), def_.name));
        return record(L_, x_.tape, def_.name, std::move(operands_), std::move(attributes_));
    }

private:
    bool variadic() const { return !def_.operands.empty() && def_.operands.back().ends_with("..."); }

    ValueId checked(int index) const {
        const Symbol* symbol = test<Symbol>(L_, index);
        if (!symbol) return constant(L_, *x_.tape, lua_tonumber(L_, index), x_.value().type.dtype);
        if (symbol->tape != x_.tape)
            fail(L_, fmt::format("{}: {} and {} belong to different programs", def_.name,
                                 label_of(*x_.tape->program, x_.id), label_of(*symbol->tape->program, symbol->id)));
        return symbol->id;
    }
    void add_operand(int index) { operands_.push_back(checked(index)); }

    /// Adds the operands given by name, and those that default to another, in the op's order.
    void add_given() {
        for (size_t i = 0; i < operands_.size(); ++i) given_.emplace(i, operands_[i]);
        for (const auto& [operand, other] : def_.stands_in)
            if (const auto found = given_.find(other); found != given_.end()) given_.emplace(operand, found->second);
        size_t before = 0;  // the last operand that was absent, and may be; those given together with it are, too
        for (size_t i = operands_.size(); i < def_.operands.size() && !variadic(); ++i) {
            const std::string_view name = def_.operands[i];
            const auto found = given_.find(i);
            const bool together = name.ends_with("??"), absent = found == given_.end();
            if (together && absent != (before > 0))
                fail(L_, fmt::format("{}: {} is missing; it is given together with {}", def_.name,
                                     plain_name(def_.operands[absent ? i : before]),
                                     plain_name(def_.operands[absent ? i - 1 : i])));
            if (!together) before = absent ? i : 0;
            if (!absent) operands_.push_back(found->second);
            if (absent && !name.ends_with("?") && given_.upper_bound(i) != given_.end()) return;  // run() says which
        }
    }

    const AttributeDef* next_attribute() const {
        for (const AttributeDef& attribute : def_.attributes)
            if (!attributes_.has(attribute.name)) return &attribute;
        return nullptr;
    }

    const AttributeDef* attribute_of(std::string_view key) const {
        const auto found = std::ranges::find(def_.attributes, key, &AttributeDef::name);
        return found == def_.attributes.end() ? nullptr : &*found;
    }

    /// Whether the list on top of the stack is the op's next attribute, as in x:transpose { "heads", "seq" }.
    bool list_attribute_next() const {
        const AttributeDef* next = next_attribute();
        if (!next || next->kind != AttributeDef::Kind::integers) return false;
        const bool list = lua_rawgeti(L_, -1, 1) != LUA_TNIL;
        lua_pop(L_, 1);
        return list;
    }

    void positional(int index) {
        const bool more = variadic() || operands_.size() < def_.operands.size();
        const std::string operand(more ? plain_name(def_.operands[std::min(operands_.size(), def_.operands.size() - 1)])
                                       : "");
        if (more && (test<Symbol>(L_, index) || (lua_type(L_, index) == LUA_TNUMBER && !variadic()))) {
            add_operand(index);
            return;
        }
        const AttributeDef* attribute = next_attribute();
        const bool wants_operand = more && operands_.size() < def_.operands.size() &&
                                   !def_.operands[operands_.size()].ends_with("?") && !variadic();
        if (wants_operand || !attribute)
            fail(L_, fmt::format("bad argument #{}{} to '{}' ({}, got {})", index - 1,
                                 operand.empty() ? "" : " '" + operand + "'", def_.name,
                                 more ? "a value expected" : "no more arguments expected", type_text(L_, index)));
        attributes_.set(attribute->name, attribute_at(L_, index, def_, *attribute, x_));
    }

    void named(int index) {
        push_sorted_keys(L_, index);
        const int keys = lua_gettop(L_);
        for (lua_Integer i = 1; lua_rawgeti(L_, keys, i) != LUA_TNIL; ++i) {
            if (lua_type(L_, -1) != LUA_TSTRING)
                fail(L_, fmt::format("{}: options must have names: write {{ name = value }}", def_.name));
            const std::string key = check_text(L_, -1);
            lua_rawget(L_, index);
            field(key);
            lua_pop(L_, 1);
        }
        lua_settop(L_, keys - 1);
    }

    void field(const std::string& key) {
        std::vector<std::string> known;
        for (size_t i = 1; i < def_.operands.size(); ++i) {
            known.emplace_back(plain_name(def_.operands[i]));
            if (known.back() != key) continue;
            if (i < operands_.size() && attribute_of(key)) break;  // the slots of dispatch: a value and a number
            if (i < operands_.size() || !test<Symbol>(L_, -1))
                fail(L_, fmt::format("{}: {} is {}, expected a value", def_.name, key, type_text(L_, -1)));
            given_[i] = checked(lua_gettop(L_));
            return;
        }
        if (const AttributeDef* attribute = attribute_of(key)) {
            attributes_.set(key, attribute_at(L_, -1, def_, *attribute, x_));
            return;
        }
        for (const AttributeDef& attribute : def_.attributes) known.emplace_back(attribute.name);
        fail(L_, fmt::format("{}: unknown option {}{}", def_.name, quote(key), choices("known", key, known)));
    }

    lua_State* L_;
    const OpDef& def_;
    const Symbol& x_;
    std::vector<ValueId> operands_;
    std::map<size_t, ValueId> given_;  ///< by operand: values given by name
    Attributes attributes_;
};

}  // namespace

int call_op(lua_State* L) {
    const auto* def = static_cast<const OpDef*>(lua_touserdata(L, lua_upvalueindex(1)));
    return Call(L, *def).run();
}

namespace {

/// native.op(name) -> function(x, ...): an op of a plugin. Loads the plugin if necessary.
int plugin_op(lua_State* L) {
    const std::string name = check_text(L, 1);
    const OpDef* own = find_op_def(name);
    if (own && !find_plugin_op(name)) fail(L, fmt::format("o.op.{0}: {0} is a built-in op; write x:{0}(...)", name));
    const OpDef& def = state_of(L).host().use_op(name, where(L));
    lua_pushlightuserdata(L, const_cast<OpDef*>(&def));
    lua_pushcclosure(L, guard<call_op>, 1);
    return 1;
}

}  // namespace

void open_ops(lua_State* L) {
    lua_pushcfunction(L, guard<plugin_op>);
    lua_setfield(L, -2, "op");
}

}  // namespace orrery::lua
