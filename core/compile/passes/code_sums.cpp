#include "compile/passes/code_sums.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "compile/islands.h"
#include "compile/passes/code_errors.h"
#include "ir/describe.h"
#include "ir/op.h"
#include "ir/sent.h"
#include "layout/shards.h"
#include "orrery/plan.h"

namespace orrery {

namespace {

using Kind = Placement::Kind;

Shape with_rows(int64_t rows, Shape shape) {
    shape.insert(shape.begin(), rows);
    return shape;
}

/// The permutation of [rows, ..] that permutes the dims after the rows.
std::vector<int64_t> after_rows(std::vector<int64_t> perm) {
    for (int64_t& dim : perm) ++dim;
    perm.insert(perm.begin(), 0);
    return perm;
}

}  // namespace

bool CodeSums::takes(const Op& sum, const Codec& codec) {
    const ValueId term = sum.inputs[0];
    const std::string axis_name = sum.attributes.text("axis");
    if (is_plain(sum, term, axis_name, codec)) return settle(sum);
    if (const OpId maker = program_.value(term).op; maker != none)
        if (std::ranges::any_of(program_.op(maker).inputs, [&](ValueId id) { return is_sent(program_.value(id)); }))
            gathered_.insert(sum.outputs[0]);
    const Cut how = cut(sum);
    if (how.size < codec.block) return is_short(sum, term, axis_name, codec) || settle(sum);
    refuse_other_sums(sum, codec);
    if (how.padding() > 0)
        program_.note(
            term, fmt::format("padded by {} elements over {}, to {} equal parts", how.padding(), axis_name, how.parts),
            sum.origin);
    if (feeds_back(sum)) error_of_[sum.outputs[0]] = error_of(sum);
    return true;
}

/// What encoding has left out of its own part of the sum, in the member's row: [members, parts, shards, elements].
ValueId CodeSums::in_own_part(const Sent& sent, ValueId left) {
    const Op& sum = sent.sum;
    const int64_t members = sent.cut.members;
    Layout split = after_loop(sum, 1);
    split.set(axis(sum), Placement::split(0));
    const ValueId member = add("iota", sum, {}, {{"shape", Shape{members}}}, std::move(split));
    const auto rows = [&](size_t rank) {
        Layout layout = after_loop(sum, rank);
        layout.set(axis(sum), Placement::split(0));
        return layout;
    };
    const ValueId own = add("one_hot", sum, {member}, {{"size", members}}, rows(2));
    const ValueId wide_own = reshaped(sum, own, {members, members, 1, 1}, rows(4));
    const ValueId rest = reshaped(sum, left, {members, 1, sent.cut.shards, sent.cut.size}, placed(sent, 4, 0, 2));
    return add("mul", sum, {rest, wide_own}, {}, placed(sent, 4, 0, 2));
}

CodeSums::Cut CodeSums::cut(const Op& sum) const {
    const Value& term = program_.value(sum.inputs[0]);
    const auto& splits = term.layout.splits();
    Cut made;
    made.members = mesh_.size(axis(sum));
    made.parts = gathers(sum) ? 1 : made.members;
    std::vector<int64_t> rest;
    std::vector<std::pair<AxisId, int>> places;
    for (size_t dim = 0; dim < term.type.shape.size(); ++dim) {
        int64_t left = term.type.shape[dim];
        const auto part = [&](int64_t size) {
            made.wide.push_back(size);
            left /= size;
        };
        for (const AxisId split : splits[dim]) {
            places.emplace_back(split, made.wide.size());
            made.axes.push_back(split);
            made.shards *= mesh_.size(split);
            part(mesh_.size(split));
        }
        if (scatters(sum) && sum.attributes.integer("dim") == static_cast<int64_t>(dim)) {
            made.perm.push_back(made.wide.size());
            part(made.parts);
        }
        rest.push_back(made.wide.size());
        made.wide.push_back(left);
    }
    made.laid = after_loop(sum, made.wide.size());
    for (const auto& [split, place] : places) {
        made.laid.set(split, Placement::split(place));
        made.perm.push_back(place);
    }
    made.perm.insert(made.perm.end(), rest.begin(), rest.end());
    made.own = term.type.count() / made.shards;
    made.size = (made.own + made.parts - 1) / made.parts;
    return made;
}

/// The layout of an unsplit value between a term and its sum: partial over micro-batches only if the sum is.
Layout CodeSums::after_loop(const Op& sum, size_t rank) const {
    Layout layout(rank);
    const Layout& after = program_.value(sum.outputs[0]).layout;
    for (const auto& partial : program_.value(sum.inputs[0]).layout.partials())
        if (after.at(partial.axis).kind == Kind::partial) layout.set(partial.axis, Placement::partial(partial.op));
    return layout;
}

/// The layout of a value with the shards in dim `shards`, of which the sum's axis splits dim `over`; none: no dim.
Layout CodeSums::placed(const Sent& sent, size_t rank, int over, size_t shards) const {
    Layout layout = after_loop(sent.sum, rank);
    for (const AxisId split : sent.cut.axes) layout.set(split, Placement::split(static_cast<int>(shards)));
    if (over != none) layout.set(axis(sent.sum), Placement::split(over));
    return layout;
}

/// The layout of [members, ..]: a row as the term, for each member of the sum's axis.
Layout CodeSums::rows_of(const Op& sum) const {
    const auto& splits = program_.value(sum.inputs[0]).layout.splits();
    Layout layout = after_loop(sum, splits.size() + 1);
    for (size_t dim = 0; dim < splits.size(); ++dim)
        for (const AxisId split : splits[dim]) layout.set(split, Placement::split(1 + static_cast<int>(dim)));
    layout.set(axis(sum), Placement::split(0));
    return layout;
}

/// The layout of [rows, wide..], or of that with its dims in the order of `perm`: the sum's axis splits dim `over`.
Layout CodeSums::wide(const Sent& sent, int over, bool in_order) const {
    const Cut& how = sent.cut;
    Layout layout = after_loop(sent.sum, how.wide.size() + 1);
    for (size_t i = 0; i < how.perm.size(); ++i)
        for (const AxisId split : how.laid.splits()[how.perm[i]])
            layout.set(split, Placement::split(1 + static_cast<int>(in_order ? i : how.perm[i])));
    if (over == 1) over = 1 + static_cast<int>(in_order ? 0 : how.perm[0]);
    if (over != none) layout.set(axis(sent.sum), Placement::split(over));
    return layout;
}

/// Cuts each member's row of [members, ..] in parts: [members, parts, shards, elements].
ValueId CodeSums::in_parts(const Sent& sent, ValueId x) {
    const Op& sum = sent.sum;
    const Cut& how = sent.cut;
    const auto cut_up = [&](Shape shape, size_t shards) {
        const size_t rank = shape.size();
        x = reshaped(sum, x, std::move(shape), placed(sent, rank, 0, shards));
    };
    x = reshaped(sum, x, with_rows(how.members, how.wide), wide(sent, 0, false));
    x = permuted(sum, x, after_rows(how.perm));
    if (!scatters(sum)) {
        if (how.shards > 1 || how.padding() > 0) cut_up({how.members, how.shards, how.own}, 1);
        if (how.padding() > 0)
            x = add("pad", sum, {x}, {{"dim", int64_t{2}}, {"before", int64_t{0}}, {"after", how.padding()}},
                    placed(sent, 3, 0, 1));
        if (how.shards > 1 && how.parts > 1) {
            cut_up({how.members, how.shards, how.parts, how.size}, 1);
            x = permuted(sum, x, {0, 2, 1, 3});
        }
    }
    cut_up(how.terms(), 2);
    return x;
}

/// Puts parts [rows, parts, shards, elements] together: [rows, elements of the whole in their order], in a shape that a
/// reshape alone makes that of the term. The sum's axis splits dim `over`, if any.
ValueId CodeSums::out_of_parts(const Sent& sent, ValueId x, int over) {
    const Op& sum = sent.sum;
    const Cut& how = sent.cut;
    const int64_t rows = program_.value(x).type.shape[0];
    if (!scatters(sum)) {
        if (how.shards > 1) x = permuted(sum, x, {0, 2, 1, 3});
        if (how.padding() > 0) {
            x = reshaped(sum, x, {rows, how.shards, how.parts * how.size}, placed(sent, 3, over, 1));
            x = add("slice", sum, {x}, {{"dim", int64_t{2}}, {"start", int64_t{0}}, {"size", how.own}},
                    placed(sent, 3, over, 1));
        }
    }
    if (!std::is_sorted(how.perm.begin(), how.perm.end())) {
        x = reshaped(sum, x, with_rows(rows, in_order(how.wide, how.perm)), wide(sent, over, true));
        x = permuted(sum, x, inverse(after_rows(how.perm)));
    }
    return x;
}

/// Sends codes: to the members of their parts (`exchanges`), or to all: those of a term, or of a part of the sum.
std::vector<ValueId> CodeSums::moved(const Sent& sent, bool exchanges, const std::vector<ValueId>& codes) {
    std::vector<ValueId> out;
    for (const ValueId code : codes) {
        Attributes attributes = coded_attributes(sent.sum, *sent.codec);
        Layout layout = program_.value(code).layout;
        layout.set(axis(sent.sum), exchanges ? Placement::split(1) : Placement::replicated());
        if (exchanges)
            attributes.set("from", int64_t{0}), attributes.set("to", int64_t{1});
        else
            attributes.set("dim", int64_t{0});
        out.push_back(add(exchanges ? "all_to_all" : "all_gather", sent.sum, {code}, attributes, std::move(layout)));
    }
    return out;
}

void CodeSums::send(Op sum, const Codec& codec) {
    Sent sent{.sum = std::move(sum), .codec = &codec};
    sent.cut = cut(sent.sum);
    const std::string axis_name = sent.sum.attributes.text("axis");
    ValueId x = add("terms", sent.sum, {sent.sum.inputs[0]}, {{"axis", axis_name}, {"members", sent.cut.members}},
                    rows_of(sent.sum));
    x = in_parts(sent, x);
    if (program_.value(x).type.dtype != DType::f32)
        x = add("cast", sent.sum, {x}, {{"dtype", std::string("f32")}}, placed(sent, 4, 0, 2));
    if (const auto error = error_of_.find(sent.sum.outputs[0]); error != error_of_.end()) {
        sent.error = error->second;
    }
    if (sent.error != none && moved_by(program_, sent.sum) == none) {  // else the term has it already
        // Terms are gradients of the scaled loss, errors those of the loss itself.
        ValueId own = in_parts(sent, sent.error);
        if (const auto scale = program_.find("loss_scale"))
            own = add("mul", sent.sum, {own, *scale}, {}, placed(sent, 4, 0, 2));
        x = add("add", sent.sum, {x, own}, {}, placed(sent, 4, 0, 2));
    }
    const std::vector<ValueId> codes = encoded(sent.sum, *sent.codec, x);
    if (sent.error != none)
        sent.left = add("sub", sent.sum, {x, decoded(sent.sum, *sent.codec, codes, sent.cut.terms())}, {},
                        placed(sent, 4, 0, 2));
    sent.codes = moved(sent, !gathers(sent.sum), codes);
    int64_t bytes = 0;
    for (const ValueId code : sent.codes) bytes += local_bytes(program_.value(code), mesh_);
    sent.message = {.result = sent.sum.outputs[0],
                    .plain = sent.sum.inputs[0],
                    .encoded = x,
                    .codec = codec.name,
                    .axis = axis_name};
    const bool full = wait_for(sent.sum, bytes);
    sent_.push_back(std::move(sent));
    if (full) finish_all();
}

void CodeSums::finish_all() {
    std::vector<ValueId> sums;
    for (Sent& sent : sent_) {
        const ValueId terms = decoded(sent.sum, *sent.codec, sent.codes, sent.cut.terms());
        sent.message.decoded = terms;
        const Layout laid = placed(sent, 3, gathers(sent.sum) ? none : 0, 1);
        sums.push_back(add("sum", sent.sum, {terms}, {{"dims", std::vector<int64_t>{0}}}, laid));
    }
    std::vector<std::vector<ValueId>> gathered(sent_.size());
    for (size_t i = 0; i < sent_.size(); ++i) {
        Sent& sent = sent_[i];
        if (!encodes_once(sent.sum)) {
            const std::vector<ValueId> codes = encoded(sent.sum, *sent.codec, sums[i]);
            if (sent.error != none) {
                const ValueId left =
                    add("sub", sent.sum, {sums[i], decoded(sent.sum, *sent.codec, codes, sent.cut.sum())}, {},
                        placed(sent, 3, 0, 1));
                sent.left = add("add", sent.sum, {sent.left, in_own_part(sent, left)}, {}, placed(sent, 4, 0, 2));
            }
            gathered[i] = moved(sent, false, codes);
        }
        if (sent.error == none) continue;
        if (const auto scale = program_.find("loss_scale"); scale && moved_by(program_, sent.sum) == none)
            sent.left = add("div", sent.sum, {sent.left, *scale}, {}, placed(sent, 4, 0, 2));
        const Value& term = program_.value(sent.sum.inputs[0]);
        const Shape rows = with_rows(sent.cut.members, term.type.shape);
        carry(sent.sum, sent.error, reshaped(sent.sum, out_of_parts(sent, sent.left, 0), rows, rows_of(sent.sum)));
    }
    for (size_t i = 0; i < sent_.size(); ++i) {
        Sent& sent = sent_[i];
        const int over = scatters(sent.sum) ? 1 : none;
        ValueId x = sums[i];
        if (!encodes_once(sent.sum)) {
            x = decoded(sent.sum, *sent.codec, gathered[i], sent.cut.sum());
            sent.message.sum = sums[i];
            sent.message.sum_decoded = x;
        }
        program_.coded.push_back(sent.message);
        const ValueId whole = sent.sum.outputs[0];
        if (const DType type = program_.value(whole).type.dtype; type != DType::f32)
            x = add("cast", sent.sum, {x}, {{"dtype", std::string(name_of(type))}}, Layout(program_.value(x).layout));
        x = reshaped(sent.sum, x, with_rows(1, program_.value(x).type.shape), placed(sent, 4, over, 2));
        reshape_to(whole, sent.sum, out_of_parts(sent, x, over), sent.message.axis, *sent.codec);
    }
    sent_.clear();
    end_waits();
}

}  // namespace orrery
