#include "compile/passes/code_ops.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/text.h"
#include "compile/islands.h"
#include "compile/passes/code_errors.h"
#include "ir/describe.h"
#include "ir/op.h"

namespace orrery {

Shape in_order(const Shape& shape, const std::vector<int64_t>& perm) {
    Shape out;
    for (const int64_t dim : perm) out.push_back(shape[dim]);
    return out;
}

bool CodeOps::unencoded(const Op& message, ValueId x, const std::string& axis, const Codec& codec,
                        const std::string& why) {
    Unencoded& like = unencoded_[fmt::format("over {}, not as {}: {}", axis, codec.name, why)];
    if (like.arrays++ == 0) like.origin = message.origin;
    like.bytes += program_.value(x).type.bytes();
    return false;
}

bool CodeOps::is_plain(const Op& message, ValueId x, const std::string& axis, const Codec& codec) {
    const Value& value = program_.value(x);
    const bool vector = value.type.shape.size() < 2;
    if (!vector && value.dims.back() != "batch" && value.dims.back() != "seq") return false;
    unencoded(message, x, axis, codec, vector ? "vectors" : "one number a token");
    return true;
}

bool CodeOps::is_short(const Op& message, ValueId x, const std::string& axis, const Codec& codec) {
    return unencoded(message, x, axis, codec, fmt::format("parts shorter than a block of {}", codec.block));
}

void CodeOps::note_unencoded() {
    for (const auto& [where, like] : unencoded_)
        program_.note(none,
                      fmt::format("{} ({} in all) sent unencoded {}", plural(like.arrays, "array"),
                                  bytes_text(like.bytes), where),
                      like.origin);
}

Attributes CodeOps::coded_attributes(const Op& message, const Codec& codec) {
    Attributes attributes{{"axis", message.attributes.text("axis")}, {"codec", codec.name}};
    if (const std::string cause = message.attributes.text("cause"); !cause.empty())
        attributes.set("cause", fmt::format("as {}, {}", codec.name, cause));
    if (const std::string keep = message.attributes.text("keep"); !keep.empty()) attributes.set("keep", keep);
    return attributes;
}

ValueId CodeOps::add(std::string kind, const Op& sum, std::vector<ValueId> inputs, Attributes attributes, Layout layout,
                     ValueId out) {
    Op op;
    op.kind = std::move(kind);
    op.inputs = std::move(inputs);
    op.attributes = std::move(attributes);
    std::vector<Typed> made = infer(op_def(op.kind), program_, op.inputs, op.attributes, sum.origin);
    op.phase = sum.phase;
    op.scope = sum.scope;
    op.stage = sum.stage;
    op.origin = sum.origin;
    for (size_t i = 0; i < made.size(); ++i) {
        if (out == none || i > 0) {
            Value value;
            value.type = made[i].type;
            value.dims.resize(value.type.shape.size());
            value.layout = layout;
            value.causes = program_.value(sum.outputs[0]).causes;
            value.origin = sum.origin;
            out = static_cast<ValueId>(program_.values.size());
            program_.values.push_back(std::move(value));
        }
        program_.value(out).op = static_cast<OpId>(program_.ops.size());
        program_.value(out).output = static_cast<int>(i);
        op.outputs.push_back(out);
    }
    program_.ops.push_back(std::move(op));
    return program_.ops.back().outputs[0];
}

ValueId CodeOps::reshaped(const Op& sum, ValueId x, Shape shape, Layout layout) {
    if (program_.value(x).type.shape == shape) return x;
    return add("reshape", sum, {x}, {{"shape", std::move(shape)}}, std::move(layout));
}

/// Permutes the dims of x.
ValueId CodeOps::permuted(const Op& sum, ValueId x, const std::vector<int64_t>& perm) {
    if (std::is_sorted(perm.begin(), perm.end())) return x;
    const Layout& from = program_.value(x).layout;
    Layout layout(perm.size());
    for (const auto& partial : from.partials()) layout.set(partial.axis, Placement::partial(partial.op));
    for (size_t i = 0; i < perm.size(); ++i)
        for (const AxisId split : from.splits()[perm[i]]) layout.set(split, Placement::split(static_cast<int>(i)));
    return add("transpose", sum, {x}, {{"perm", perm}}, std::move(layout));
}

void CodeOps::reshape_to(ValueId out, const Op& like, ValueId x, const std::string& axis, const Codec& codec) {
    add("reshape", like, {x}, {{"shape", program_.value(out).type.shape}, {"axis", axis}, {"codec", codec.name}}, {},
        out);
}

namespace {

/// Whether each dim of rows but the last passes through an op untouched: an element of an output needs only elements at
/// the same place of these dims.
bool keeps_rows(const Program& program, const Op& op, size_t rows) {
    const FactorRule rule = rule_of(program, op);
    const auto parallel = [&](int factor) { return rule.factors[factor].kind == Factor::Kind::parallel; };
    for (const FactorRule::Dims& out : rule.outputs)
        for (size_t dim = 0; dim < rows; ++dim) {
            if (!std::ranges::all_of(out[dim], parallel)) return false;
            for (size_t i = 0; i < op.inputs.size(); ++i)
                if (program.value(op.inputs[i]).type.shape.size() > rows && rule.inputs[i][dim] != out[dim])
                    return false;
        }
    return true;
}

/// Calls a function of a codec; its errors name the codec, the function and what it is given.
template <class Work>
auto call_codec(const Codec& codec, std::string_view function, const std::string& given, Work&& work) {
    try {
        return work();
    } catch (const Error& error) {
        throw Error(fmt::format("codec {}, {} of {}: {}", codec.name, function, given, error.what()), error.fault());
    }
}

}  // namespace

/// Traces ops of a codec on rows: all dims but the last stay as they are, and so do their layouts.
AddPart CodeOps::tracer(const Op& like, const Shape& rows, const Layout& laid) {
    return [this, &like, rows, laid](std::string_view kind, std::vector<ValueId> inputs, Attributes attributes,
                                     const std::vector<ValueId>& into) {
        if (!into.empty())
            throw Error(
                like.origin,
                fmt::format("add of {} has a fourth argument, values to write to; ops of a codec make new values: "
                            "leave it out",
                            kind));
        add(std::string(kind), like, std::move(inputs), std::move(attributes), laid);
        const std::vector<ValueId> outputs = program_.ops.back().outputs;
        for (const ValueId out : outputs) {
            const Shape& made = program_.value(out).type.shape;
            if (made.size() < rows.size() || !std::equal(rows.begin(), rows.end() - 1, made.begin()))
                throw Error(like.origin, fmt::format("{} makes {}, but encode and decode may change only the last dim",
                                                     kind, describe(program_, out)));
            Layout layout(made.size());
            for (const auto& partial : laid.partials()) layout.set(partial.axis, Placement::partial(partial.op));
            for (size_t dim = 0; dim + 1 < rows.size(); ++dim)
                for (const AxisId split : laid.splits()[dim])
                    layout.set(split, Placement::split(static_cast<int>(dim)));
            program_.value(out).layout = std::move(layout);
        }
        if (!keeps_rows(program_, program_.ops.back(), rows.size() - 1))
            throw Error(like.origin, fmt::format("{} mixes rows, but encode and decode may mix elements only along the "
                                                 "last dim: ranks have different rows, so codes would depend on the "
                                                 "mesh\n  apply {} to the last dim",
                                                 kind, kind));
        return outputs;
    };
}

std::vector<ValueId> CodeOps::encoded(const Op& like, const Codec& codec, ValueId x) {
    const TensorType type = program_.value(x).type;
    const AddPart add = tracer(like, type.shape, Layout(program_.value(x).layout));
    return call_codec(codec, "encode", type.text(), [&] {
        std::vector<ValueId> codes = codec.encode({program_, mesh_, add}, x);
        if (codes.empty()) throw Error(like.origin, "it returned no codes");
        return codes;
    });
}

ValueId CodeOps::decoded(const Op& like, const Codec& codec, const std::vector<ValueId>& codes, const Shape& rows) {
    const AddPart add = tracer(like, rows, Layout(program_.value(codes[0]).layout));
    const TensorType expected{DType::f32, rows};
    return call_codec(codec, "decode", "codes of " + expected.text(), [&] {
        const ValueId x = codec.decode({program_, mesh_, add}, codes, rows);
        if (program_.value(x).type != expected)
            throw Error(like.origin, fmt::format("it makes {}, expected {}", describe(program_, x), expected.text()));
        return x;
    });
}

bool SumOps::wait_for(const Op& sum, int64_t bytes) {
    waiting_.insert(sum.outputs[0]);
    bytes_ += bytes;
    return bytes_ >= program_.bucket_bytes(sum.attributes.text("axis"), sum.phase);
}

void SumOps::end_waits() {
    waiting_.clear();
    bytes_ = 0;
}

bool SumOps::in_loop(const Op& sum) const {
    const auto& partials = program_.value(sum.outputs[0]).layout.partials();
    return std::any_of(partials.begin(), partials.end(), [&](const auto& p) { return mesh_.axis(p.axis).sequential; });
}

void SumOps::refuse_other_sums(const Op& sum, const Codec& codec) const {
    const std::string axis = sum.attributes.text("axis");
    for (const auto& partial : program_.value(sum.inputs[0]).layout.partials())
        if (mesh_.axis(partial.axis).name != axis && !mesh_.axis(partial.axis).sequential)
            throw Error(sum.origin,
                        fmt::format("{} cannot be sent over {} as {}: it is summed over {}, too\n  use bf16, or encode "
                                    "over one axis alone, as in codec = \"{}={}\" if the strategy sends over {}",
                                    describe(program_, sum.inputs[0]), axis, codec.name, mesh_.axis(partial.axis).name,
                                    mesh_.axis(partial.axis).name, codec.name, mesh_.axis(partial.axis).name));
}

bool SumOps::feeds_back(const Op& sum) const {
    return program_.edge(sum.attributes.text("axis"), Phase::backward).flag("feedback");
}

ValueId SumOps::state_of(const Op& sum, const StateName& name, Layout layout, std::string_view what,
                         std::string_view remedy) {
    const ValueId term = sum.inputs[0];
    const std::string axis = sum.attributes.text("axis");
    for (const auto& [param, grad] : program_.grads()) {
        if (original_of(program_, grad) != original_of(program_, term)) continue;
        const std::optional<ValueId> state = program_.find(name(program_.value(param).name, axis));
        if (!state) continue;
        int64_t& rows = program_.value(*state).type.shape[0];
        rows = 1;
        for (const AxisId split : layout.splits()[0]) rows *= mesh_.size(split);
        program_.value(*state).layout = std::move(layout);
        return *state;
    }
    throw Error(sum.origin, fmt::format("{} cannot have {} over {}: it is not the gradient of a single param\n  {}",
                                        describe(program_, term), what, axis, remedy));
}

ValueId SumOps::error_of(const Op& sum) {
    if (in_loop(sum))
        throw Error(sum.origin, fmt::format("{} cannot have feedback over {}: it is sent in each micro-batch, and "
                                            "errors are carried from step to step\n  use zero = 1, or leave "
                                            "feedback out",
                                            describe(program_, sum.inputs[0]), sum.attributes.text("axis")));
    const auto& splits = program_.value(sum.inputs[0]).layout.splits();
    Layout rows(splits.size() + 1);
    for (size_t dim = 0; dim < splits.size(); ++dim)
        for (const AxisId split : splits[dim]) rows.set(split, Placement::split(1 + static_cast<int>(dim)));
    rows.set(axis(sum), Placement::split(0));
    if (const ValueId moved = moved_by(program_, sum); moved != none) {
        if (program_.value(moved).layout == rows) return moved;
        throw Error(
            sum.origin,
            fmt::format("{} cannot have feedback over {}: it is not split over the mesh as {} is\n  "
                        "leave feedback out",
                        describe(program_, sum.inputs[0]), sum.attributes.text("axis"), describe(program_, moved)));
    }
    return state_of(sum, error_name, std::move(rows), "feedback", "leave feedback out");
}

/// The value that is 0 in a step that leaves the param as it is; none: every step updates it.
ValueId SumOps::guard_of(ValueId param) const {
    for (const Update& update : program_.updates) {
        if (update.target != param) continue;
        OpId maker = program_.value(update.value).op;
        while (maker != none && op_def(program_.op(maker).kind).casts)
            maker = program_.value(program_.op(maker).inputs[0]).op;
        if (maker == none) continue;
        const Op& made = program_.op(maker);
        const OpDef& def = op_def(made.kind);
        for (size_t i = 0; i < made.inputs.size() && i < def.operands.size(); ++i)
            if (def.operands[i] == "apply?") return made.inputs[i];
        // A guard in a script assigns select(apply, next, param).
        const bool chooses = made.inputs.size() == 3 && made.inputs[2] == param;
        if (chooses && program_.value(made.inputs[0]).type.shape.empty()) return made.inputs[0];
    }
    return none;
}

bool SumOps::settle(const Op& sum) {
    const ValueId moved = feeds_back(sum) ? moved_by(program_, sum) : none;
    if (moved != none && program_.value(moved).role == Role::state) carry(sum, moved, none);
    return false;
}

void SumOps::keep_states() {
    for (const auto& [sum, state, value] : carried_) {
        ValueId next = value;
        Op update = sum;
        update.phase = Phase::update;
        update.stage = none;
        const ValueId apply = guard_of(program_.value(state).of);
        if (apply == none && program_.find("loss_scale"))
            throw Error(
                sum.origin,
                fmt::format("{} is carried from step to step, and nothing in program {} says which steps the loss "
                            "scale skips\n  update the params in the program that computes their gradients, or "
                            "use a codec that keeps nothing, without feedback",
                            describe(program_, state), program_.name));
        const Layout rests = program_.value(state).layout;
        if (next == none) next = add("scale", update, {state}, {{"by", 0.0}}, rests);
        if (apply != none) next = add("select", update, {apply, next, state}, {}, rests);
        program_.updates.push_back({state, next});
    }
}

}  // namespace orrery
