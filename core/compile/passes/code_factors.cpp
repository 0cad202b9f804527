#include "compile/passes/code_factors.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "compile/islands.h"
#include "compile/passes/code_errors.h"
#include "ir/describe.h"
#include "ir/op.h"
#include "layout/factors.h"
#include "layout/shards.h"

namespace orrery {

namespace {

std::vector<int64_t> in_a_row(int64_t first, int64_t count) {
    std::vector<int64_t> all(count);
    std::iota(all.begin(), all.end(), first);
    return all;
}

void append(std::vector<int64_t>& to, const std::vector<int64_t>& more) {
    to.insert(to.end(), more.begin(), more.end());
}

}  // namespace

bool CodeFactors::takes(const Op& sum, const Codec& codec) {
    const ValueId term = sum.inputs[0];
    const std::string axis_name = sum.attributes.text("axis");
    if (program_.edge(axis_name, Phase::update).flag(islands_option))
        throw Error(sum.origin, fmt::format("{} cannot be sent over {} as {}, which keeps a state for each gradient\n  "
                                            "use another codec for islands, as int8",
                                            describe(program_, term), axis_name, codec.name));
    if (is_plain(sum, term, axis_name, codec)) return false;
    const Cut how = cut(sum);
    if (!codec.shortens(how.m(), how.n())) return unencoded(sum, term, axis_name, codec, "no larger than their codes");
    refuse_other_sums(sum, codec);
    States& states = states_[sum.outputs[0]];
    const std::string what = fmt::format("the state that {} keeps", codec.name);
    states.kept = state_of(sum, factor_name, kept_layout(sum), what, "use another codec, as int8");
    if (feeds_back(sum)) states.error = error_of(sum);
    return true;
}

CodeFactors::Cut CodeFactors::cut(const Op& sum) const {
    const Value& term = program_.value(sum.inputs[0]);
    const auto& splits = term.layout.splits();
    const Shape& shape = term.type.shape;
    const int64_t batch = std::ssize(shape) - 2;
    Cut made;
    // A dim of size m or n becomes one for each axis that splits it, and one of what is left.
    const auto cut_up = [&](int64_t dim, Shape& wide, std::vector<int64_t>& shards) {
        int64_t left = shape[dim];
        for (const AxisId split : splits[dim]) {
            shards.push_back(std::ssize(wide));
            wide.push_back(mesh_.size(split));
            left /= wide.back();
        }
        return left;
    };
    made.wide.assign(shape.begin(), shape.begin() + batch);
    const int64_t m = cut_up(batch, made.wide, made.perm), at_m = std::ssize(made.wide);
    made.wide.push_back(m);
    const int64_t n = cut_up(batch + 1, made.wide, made.perm), at_n = std::ssize(made.wide);
    made.wide.push_back(n);
    append(made.perm, in_a_row(0, batch));
    append(made.perm, {at_m, at_n});
    made.matrices = in_order(made.wide, made.perm);

    cut_up(batch, made.kept, made.kept_perm);
    const int64_t at_batch = std::ssize(made.kept);
    append(made.kept, {shape.begin(), shape.begin() + batch});
    cut_up(batch + 1, made.kept, made.kept_perm);
    append(made.kept_perm, in_a_row(at_batch, batch));
    append(made.kept_perm, in_a_row(std::ssize(made.kept), 2));
    made.kept.push_back(n);
    return made;
}

/// The layout of what a codec keeps for a term: [shards of m, batch.., n, columns].
Layout CodeFactors::kept_layout(const Op& sum) const {
    const auto& splits = program_.value(sum.inputs[0]).layout.splits();
    const size_t m = splits.size() - 2;
    Layout layout(splits.size() + 1);
    for (size_t dim = 0; dim < splits.size(); ++dim)
        for (const AxisId split : splits[dim])
            layout.set(split, Placement::split(dim == m ? 0 : static_cast<int>(dim < m ? dim + 1 : dim)));
    return layout;
}

/// Appends an op with outputs laid out as its rule says. Of partial inputs they are partial, too: ops are linear
/// in terms, and run for each micro-batch if `in_loop`, else after the last one.
std::vector<ValueId> CodeFactors::record(std::string_view kind, const Op& like, bool in_loop,
                                         std::vector<ValueId> inputs, Attributes attributes) {
    add(std::string(kind), like, std::move(inputs), std::move(attributes), {});
    const Op op = program_.ops.back();
    const FactorRule rule = op_def(op.kind).rule(program_, op);
    Assignment how;
    how.splits.resize(rule.factors.size());
    for (size_t i = 0; i < op.inputs.size(); ++i)
        for (const Preference& split :
             preferences_of(program_.value(op.inputs[i]).layout, rule.inputs[i], rule, mesh_)) {
            if (split.blocked != Blocked::no)
                throw Error(like.origin, fmt::format("codec: {} needs whole matrices: {} is split over {}", kind,
                                                     describe(program_, op.inputs[i]), mesh_.axis(split.axis).name));
            std::vector<AxisId>& axes = how.splits[split.factor];
            if (std::find(axes.begin(), axes.end(), split.axis) == axes.end()) axes.push_back(split.axis);
        }
    for (size_t i = 0; i < op.outputs.size(); ++i) {
        Layout layout = output_layout(rule, i, how);
        for (const ValueId input : op.inputs)
            for (const auto& partial : program_.value(input).layout.partials())
                if (in_loop || !mesh_.axis(partial.axis).sequential)
                    layout.set(partial.axis, Placement::partial(partial.op));
        program_.value(op.outputs[i]).layout = std::move(layout);
    }
    return op.outputs;
}

AddPart CodeFactors::tracer(const Op& like, bool in_loop) {
    return [this, &like, in_loop](std::string_view kind, std::vector<ValueId> inputs, Attributes attributes,
                                  const std::vector<ValueId>&) {
        return record(kind, like, in_loop, std::move(inputs), std::move(attributes));
    };
}

ValueId CodeFactors::one(std::string_view kind, const Op& sum, std::vector<ValueId> inputs, Attributes attributes) {
    return record(kind, sum, in_loop(sum), std::move(inputs), std::move(attributes))[0];
}

ValueId CodeFactors::permuted(const Op& sum, bool in_loop, ValueId x, const std::vector<int64_t>& perm) {
    if (std::is_sorted(perm.begin(), perm.end())) return x;
    return record("transpose", sum, in_loop, {x}, {{"perm", perm}})[0];
}

ValueId CodeFactors::in_matrices(const Sent& sent, ValueId x) {
    x = one("reshape", sent.sum, {x}, {{"shape", sent.cut.wide}});
    x = permuted(sent.sum, in_loop(sent.sum), x, sent.cut.perm);
    if (program_.value(x).type.dtype == DType::f32) return x;
    return one("cast", sent.sum, {x}, {{"dtype", std::string("f32")}});
}

/// What the codec keeps [shards of m, batch.., n, columns] as [shards.., batch.., n, columns].
ValueId CodeFactors::kept_in_matrices(const Sent& sent) {
    const ValueId wide = one("reshape", sent.sum, {sent.states.kept}, {{"shape", sent.cut.kept}});
    return permuted(sent.sum, in_loop(sent.sum), wide, sent.cut.kept_perm);
}

/// Sends the codes of a round.
void CodeFactors::send_round(Sent& sent, size_t round) {
    const AddPart part = tracer(sent.sum, in_loop(sent.sum));
    sent.own = sent.codec->rounds[round].encode({program_, mesh_, part}, sent.x, sent.kept, sent.made);
    Attributes attributes = coded_attributes(sent.sum, *sent.codec);
    attributes.set("op", std::string(name_of(ReduceOp::sum)));
    Layout layout = program_.value(sent.own).layout;
    layout.set(axis(sent.sum), Placement::replicated());
    sent.made.push_back(add("all_reduce", sent.sum, {sent.own}, std::move(attributes), std::move(layout)));
}

void CodeFactors::send(Op sum, const Codec& codec) {
    const std::string axis_name = sum.attributes.text("axis");
    Sent sent{.sum = std::move(sum), .codec = &codec};
    sent.cut = cut(sent.sum);
    sent.cut.kept.push_back(codec.columns);
    sent.states = states_.at(sent.sum.outputs[0]);
    sent.x = in_matrices(sent, sent.sum.inputs[0]);
    if (sent.states.error != none) {
        // Terms are gradients of the scaled loss, errors those of the loss itself.
        ValueId own = one("sum", sent.sum, {sent.states.error}, {{"dims", std::vector<int64_t>{0}}});
        if (const auto scale = program_.find("loss_scale")) own = one("mul", sent.sum, {own, *scale});
        sent.x = one("add", sent.sum, {sent.x, in_matrices(sent, own)});
    }
    sent.kept = kept_in_matrices(sent);
    send_round(sent, 0);
    program_.coded.push_back({.result = sent.sum.outputs[0],
                              .plain = sent.sum.inputs[0],
                              .encoded = sent.x,
                              .codec = codec.name,
                              .axis = axis_name});
    const bool full = wait_for(sent.sum, local_bytes(program_.value(sent.x), mesh_));
    sent_.push_back(std::move(sent));
    if (full) finish_all();
}

void CodeFactors::finish_all() {
    size_t rounds = 0;
    for (const Sent& sent : sent_) rounds = std::max(rounds, sent.codec->rounds.size());
    for (size_t round = 0; round < rounds; ++round) {
        for (Sent& sent : sent_)
            if (round > 0 && round < sent.codec->rounds.size()) send_round(sent, round);
        for (Sent& sent : sent_) {
            if (round >= sent.codec->rounds.size() || !sent.codec->rounds[round].make) continue;
            const AddPart part = tracer(sent.sum, in_loop(sent.sum));
            sent.made[round] = sent.codec->rounds[round].make({program_, mesh_, part}, sent.made[round]);
        }
    }
    for (const Sent& sent : sent_) {
        decode(sent);
        keep(sent);
    }
    sent_.clear();
    end_waits();
}

/// Decodes the sum: of a reduce_scatter the own part, from a part of the codes.
void CodeFactors::decode(const Sent& sent) {
    const Op& sum = sent.sum;
    std::vector<ValueId> codes = sent.made;
    if (sum.attributes.has("dim")) {
        const int64_t rank = std::ssize(sent.cut.matrices), from = sum.attributes.integer("dim");
        const int64_t batch = std::ssize(program_.value(sum.inputs[0]).type.shape) - 2;
        const int64_t dim = rank - 2 - batch + from;  // of the matrices
        for (size_t i = 0; i < codes.size(); ++i) {
            const int64_t own = rank + sent.codec->rounds[i].of;
            if (from >= batch && dim != own) continue;
            const int64_t place = from >= batch ? rank - 2 : dim;
            Layout layout = program_.value(codes[i]).layout;
            layout.set(axis(sum), Placement::split(static_cast<int>(place)));
            codes[i] = add("shard", sum, {codes[i]}, {{"axis", sum.attributes.text("axis")}, {"dim", place}},
                           std::move(layout));
        }
    }
    const AddPart part = tracer(sum, in_loop(sum));
    ValueId x = sent.codec->decode({program_, mesh_, part}, codes, sent.cut.matrices);
    const ValueId whole = sum.outputs[0];
    if (const DType type = program_.value(whole).type.dtype; type != DType::f32)
        x = one("cast", sum, {x}, {{"dtype", std::string(name_of(type))}});
    x = permuted(sum, in_loop(sum), x, inverse(sent.cut.perm));
    reshape_to(whole, sum, x, sum.attributes.text("axis"), *sent.codec);
}

/// Computes what the codec keeps, and the errors of the own term, for the next step.
void CodeFactors::keep(const Sent& sent) {
    const Op& sum = sent.sum;
    const AddPart part = tracer(sum, false);
    ValueId next = sent.codec->keep({program_, mesh_, part}, sent.kept, sent.made);
    next = permuted(sum, false, next, inverse(sent.cut.kept_perm));
    next = record("reshape", sum, false, {next}, {{"shape", program_.value(sent.states.kept).type.shape}})[0];
    carry(sum, sent.states.kept, next);
    if (sent.states.error == none) return;
    std::vector<ValueId> own = sent.made;
    own.back() = sent.own;
    ValueId left = one("sub", sum, {sent.x, sent.codec->decode({program_, mesh_, part}, own, sent.cut.matrices)});
    if (const auto scale = program_.find("loss_scale")) left = one("div", sum, {left, *scale});
    left = permuted(sum, false, left, inverse(sent.cut.perm));
    left = one("reshape", sum, {left}, {{"shape", program_.value(sum.inputs[0]).type.shape}});
    const std::string axis_name = sum.attributes.text("axis");
    left = add("terms", sum, {left}, {{"axis", axis_name}, {"members", mesh_.size(axis_name)}},
               Layout(program_.value(sent.states.error).layout));
    carry(sum, sent.states.error, left);
}

}  // namespace orrery
