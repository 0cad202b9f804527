#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/json.h"
#include "base/suggest.h"
#include "base/text.h"
#include "lua/fields.h"
#include "lua/json_table.h"
#include "lua/record/traced.h"

namespace orrery::lua {

namespace {

/// part = { dim, index, count }: the stored tensor consists of `count` equal pieces along dim, and the param is one.
/// interleaved: the pieces are interleaved along dim, of each `count` elements the param has the index-th.
void read_part(lua_State* L, Fields& fields, const Program& program, WeightSource& source) {
    const std::vector<int64_t> part = fields.integers("part");
    const bool interleaved = fields.flag("interleaved").value_or(false);
    if (part.empty() && interleaved) fail(L, fmt::format("weights: {} is interleaved without a part", source.param));
    if (part.empty()) return;
    const Shape shape = source.stored_shape(program.value(*program.find(source.param)).type.shape);
    const auto rank = static_cast<int64_t>(shape.size());
    const bool fits = part.size() == 3 && part[0] >= 1 && part[0] <= rank && part[1] >= 1 && part[1] <= part[2];
    if (!fits)
        fail(L, fmt::format("weights: part of {} must be {{ dim, index, count }}, counted from 1", source.param));
    source.dim = static_cast<int>(part[0] - 1);
    source.size = shape[static_cast<size_t>(source.dim)];
    source.start = (part[1] - 1) * (interleaved ? 1 : source.size);
    if (interleaved) source.stride = part[2];
}

/// padded = { dim, count }: the stored tensor's size along dim is `count`; the param is larger and padded with zeros.
void read_padded(lua_State* L, Fields& fields, const Program& program, WeightSource& source) {
    const std::vector<int64_t> padded = fields.integers("padded");
    if (padded.empty()) return;
    const Shape shape = source.stored_shape(program.value(*program.find(source.param)).type.shape);
    const auto rank = static_cast<int64_t>(shape.size());
    const bool fits = padded.size() == 2 && padded[0] >= 1 && padded[0] <= rank && padded[1] >= 1 && source.dim < 0 &&
                      padded[1] <= shape[static_cast<size_t>(padded[0] - 1)];
    if (!fits)
        fail(L,
             fmt::format("weights: padded of {} must be {{ dim, count }} of the stored tensor, with count at most the "
                         "param's size, and cannot be combined with part",
                         source.param));
    source.padded = static_cast<int>(padded[0] - 1);
    source.rows = padded[1];
}

/// tensor = "experts.*.up.weight": a tensor for each index along the param's first dim. from = "mlp.up.weight": the
/// tensor that files to load have instead; without * it fills all indices.
void read_names(lua_State* L, Fields& fields, const Program& program, WeightSource& source) {
    source.tensor = fields.text("tensor").value_or(source.param);
    source.from = fields.text("from").value_or("");
    source.stacked = source.tensor.find('*') != std::string::npos;
    const TensorType& type = program.value(*program.find(source.param)).type;
    const auto stars = [](const std::string& name) { return std::ranges::count(name, '*'); };
    if (source.stacked && type.shape.empty())
        fail(L, fmt::format("weights: {} has tensors {}, one for each index along its first dim, but is a scalar",
                            source.param, source.tensor));
    if (stars(source.tensor) > 1 || stars(source.from) > stars(source.tensor))
        fail(L, fmt::format("weights: tensor of {} is {}{}: one * stands for the index along the param's first dim, in "
                            "`tensor` and, if the files have a tensor for each index, in `from`",
                            source.param, quote(source.tensor),
                            source.from.empty() ? "" : fmt::format(", from {}", quote(source.from))));
}

/// copies = { ["lm_head.weight"] = "wte.weight" }: the published tensor lm_head.weight is a copy of wte.weight.
std::vector<WeightCopy> read_copies(lua_State* L, Fields& fields) {
    std::vector<WeightCopy> out;
    fields.push_field("copies");
    if (!lua_isnil(L, -1)) {
        if (!lua_istable(L, -1)) fields.wrong("copies", "a table from tensors to the ones that they are copies of");
        Fields copies(L, -1, "weights: copies");
        push_sorted_keys(L, -1);
        for (lua_Integer i = 1; lua_rawgeti(L, -1, i) == LUA_TSTRING; ++i) {
            const std::string tensor = check_text(L, -1);
            lua_pop(L, 1);
            out.push_back({tensor, copies.text(tensor).value_or("")});
        }
        lua_pop(L, 2);
        copies.finish();
    }
    lua_pop(L, 1);
    return out;
}

}  // namespace

PublishedWeights check_weights(lua_State* L, int index, const Program& program) {
    check_table(L, index, "a list of weights");
    const Origin origin = where(L);
    std::vector<std::string> params;
    for (const ValueId id : program.params()) params.push_back(program.value(id).name);
    std::vector<std::string> known = params;  // with states that belong to no param
    for (const Value& value : program.values)
        if (value.role == Role::state && value.of == none && value.type.dtype == DType::f32)
            known.push_back(value.name);
    std::set<std::string> named;
    PublishedWeights out;
    Fields beside(L, index, "weights");
    out.ignore = beside.texts("ignore");
    const std::vector<std::string> fresh = beside.texts("fresh");
    const auto is_fresh = [&](const std::string& param) {
        return std::ranges::any_of(fresh, [&](const auto& pattern) { return matches(pattern, param); });
    };
    out.copies = read_copies(L, beside);
    out.prefix = beside.text("prefix").value_or("");
    beside.push_field("published");
    if (!lua_isnil(L, -1)) out.published = json_of(L, -1, "weights: published").dump();
    lua_pop(L, 1);
    beside.finish(true);
    for (lua_Integer i = 1; lua_rawgeti(L, index, i) != LUA_TNIL; ++i) {
        Fields fields(L, -1, "weights");
        WeightSource source;
        source.origin = origin;
        source.param = fields.text("param").value_or("");
        source.transpose = fields.flag("transpose").value_or(false);
        if (std::ranges::find(known, source.param) == known.end())
            fail(L, fmt::format("weights: no param {}{}", quote(source.param), choices("known", source.param, known)));
        if (!named.insert(source.param).second) fail(L, fmt::format("weights: {} is named twice", source.param));
        source.fresh = is_fresh(source.param);
        read_names(L, fields, program, source);
        read_part(L, fields, program, source);
        read_padded(L, fields, program, source);
        fields.finish();
        out.sources.push_back(std::move(source));
        lua_pop(L, 1);
    }
    lua_pop(L, 1);
    for (const std::string& pattern : fresh)
        if (std::ranges::none_of(known, [&](const auto& name) { return matches(pattern, name); }))
            fail(L, fmt::format("weights: fresh: no param matches {}", quote(pattern)));
    for (const std::string& param : params) {
        if (named.count(param)) continue;
        if (!is_fresh(param))
            fail(L, fmt::format("weights: param {} is missing in the list: name its tensor, or name it in `fresh` "
                                "where the files have none and it begins with its initial values",
                                param));
        WeightSource source;
        source.origin = origin;
        source.param = source.tensor = param;
        source.fresh = true;
        out.sources.push_back(std::move(source));
    }
    return out;
}

}  // namespace orrery::lua
