#include "compile/passes/code_moves.h"

#include <fmt/format.h>

#include <algorithm>

#include "ir/describe.h"
#include "ir/op.h"
#include "orrery/plan.h"

namespace orrery {

bool CodeMoves::takes(const Op& moved, const Codec& codec) {
    const ValueId x = moved.inputs[0];
    const std::string axis = moved.attributes.text("axis");
    if (!program_.value(x).layout.partials().empty()) return unencoded(moved, x, axis, codec, "terms of another sum");
    if (cut(moved).size < codec.block) return is_short(moved, x, axis, codec);
    return true;
}

bool CodeMoves::takes(const Op& maker, ValueId x, const Codec& codec, const std::string& axis) {
    if (is_plain(maker, x, axis, codec)) return false;
    if (cut(x, std::nullopt, none).size < codec.block) return is_short(maker, x, axis, codec);
    return true;
}

CodeMoves::Cut CodeMoves::cut(ValueId x, std::optional<AxisId> over, int into) const {
    const Value& value = program_.value(x);
    Cut made;
    made.over = over;
    std::vector<int64_t> rest;
    for (size_t dim = 0; dim < value.type.shape.size(); ++dim) {
        int64_t left = value.type.shape[dim];
        const auto part = [&](AxisId axis) {
            made.wide.push_back(mesh_.size(axis));
            left /= mesh_.size(axis);
            return static_cast<int>(made.wide.size()) - 1;
        };
        for (const AxisId split : value.layout.splits()[dim]) {
            const int place = part(split);
            if (split == over) {
                made.before = place;
                made.from = mesh_.size(split);
                continue;
            }
            made.places.emplace_back(split, place);
            made.shards *= mesh_.size(split);
        }
        if (into == static_cast<int>(dim)) {
            made.after = part(*over);
            made.to = mesh_.size(*over);
        }
        rest.push_back(static_cast<int64_t>(made.wide.size()));
        made.wide.push_back(left);
    }
    for (const int place : {made.before, made.after})
        if (place != none) made.perm.push_back(place);
    for (const auto& [axis, place] : made.places) made.perm.push_back(place);
    made.perm.insert(made.perm.end(), rest.begin(), rest.end());
    made.size = value.type.count() / (made.from * made.to * made.shards);
    return made;
}

CodeMoves::Cut CodeMoves::cut(const Op& moved) const {
    const AxisId over = *mesh_.find(moved.attributes.text("axis"));
    const bool gathers = collective_of(moved) == Opcode::all_gather;
    return cut(moved.inputs[0], over, gathers ? none : static_cast<int>(moved.attributes.integer("to")));
}

/// The layout of [wide..], or of that in the order of `perm`: the message's axis splits dim `over` of `wide`, if any.
Layout CodeMoves::laid_wide(const Cut& how, bool ordered, int over) const {
    const std::vector<int64_t> to = inverse(how.perm);
    const auto split = [&](int dim) { return Placement::split(ordered ? static_cast<int>(to[dim]) : dim); };
    Layout layout(how.wide.size());
    for (const auto& [axis, dim] : how.places) layout.set(axis, split(dim));
    if (over != none) layout.set(*how.over, split(over));
    return layout;
}

Layout CodeMoves::laid_in_parts(const Cut& how, int over) const {
    Layout layout(4);
    for (const auto& [axis, dim] : how.places) layout.set(axis, Placement::split(2));
    if (over != none) layout.set(*how.over, Placement::split(over));
    return layout;
}

/// A new value, f32[from, to, shards, elements].
ValueId CodeMoves::in_parts(const Op& like, ValueId x, const Cut& how) {
    x = reshaped(like, x, how.wide, laid_wide(how, false, how.before));
    x = permuted(like, x, how.perm);
    const Layout rows = laid_in_parts(how, how.before == none ? none : 0);
    x = add("reshape", like, {x}, {{"shape", how.parts()}}, rows);
    if (program_.value(x).type.dtype == DType::f32) return x;
    return add("cast", like, {x}, {{"dtype", std::string("f32")}}, rows);
}

/// Puts decoded parts together as `out`.
void CodeMoves::put_together(const Op& like, ValueId x, const Cut& how, const std::string& axis, const Codec& codec,
                             ValueId out) {
    if (const DType type = program_.value(out).type.dtype; type != DType::f32)
        x = add("cast", like, {x}, {{"dtype", std::string(name_of(type))}}, Layout(program_.value(x).layout));
    x = reshaped(like, x, in_order(how.wide, how.perm), laid_wide(how, true, how.after));
    x = permuted(like, x, inverse(how.perm));
    reshape_to(out, like, x, axis, codec);
}

void CodeMoves::send(const Op& moved, const Codec& codec) {
    const ValueId plain = moved.inputs[0], out = moved.outputs[0];
    const std::string axis = moved.attributes.text("axis");
    const bool gathers = collective_of(moved) == Opcode::all_gather;
    const Cut how = cut(moved);
    const ValueId x = in_parts(moved, plain, how);
    std::vector<ValueId> codes = encoded(moved, codec, x);
    Attributes attributes = coded_attributes(moved, codec);
    if (gathers)
        attributes.set("dim", int64_t{0});
    else
        attributes.set("from", int64_t{0}), attributes.set("to", int64_t{1});
    for (ValueId& code : codes) {
        Layout layout = program_.value(code).layout;
        layout.set(*how.over, gathers ? Placement::replicated() : Placement::split(1));
        code = add(moved.kind, moved, {code}, attributes, std::move(layout));
    }
    const ValueId got = decoded(moved, codec, codes, how.parts());
    program_.coded.push_back(
        {.result = out, .plain = plain, .encoded = x, .decoded = got, .codec = codec.name, .axis = axis});
    put_together(moved, got, how, axis, codec, out);
}

std::vector<ValueId> CodeMoves::pass_on(const Op& maker, ValueId x, const Codec& codec, const std::vector<int>& stages,
                                        const std::string& axis) {
    const Cut how = cut(x, std::nullopt, none);
    const ValueId rows = in_parts(maker, x, how);
    const std::vector<ValueId> codes = encoded(maker, codec, rows);
    std::vector<ValueId> read;
    for (const int stage : stages) {
        Op there = maker;
        there.stage = stage;
        Value value;
        value.type = program_.value(x).type;
        value.dims = program_.value(x).dims;
        value.layout = program_.value(x).layout;
        value.causes = program_.value(x).causes;
        value.origin = program_.value(x).origin;
        program_.values.push_back(std::move(value));
        read.push_back(static_cast<ValueId>(program_.values.size()) - 1);
        const ValueId got = decoded(there, codec, codes, how.parts());
        program_.coded.push_back(
            {.result = read.back(), .plain = x, .encoded = rows, .decoded = got, .codec = codec.name, .axis = axis});
        put_together(there, got, how, axis, codec, read.back());
    }
    return read;
}

}  // namespace orrery
