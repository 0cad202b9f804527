#include "compile/passes/precision.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "ir/describe.h"
#include "ir/op.h"
#include "ir/signature.h"

namespace orrery {

namespace {

bool takes_type(const OpDef& def) {
    return std::any_of(def.attributes.begin(), def.attributes.end(),
                       [](const AttributeDef& attribute) { return attribute.name == "dtype"; });
}

class Precision {
public:
    Precision(Program& program, DType compute) : program_(program), compute_(compute) {}

    void run() {
        std::vector<Op> old = std::move(program_.ops);
        program_.ops.clear();
        program_.ops.reserve(old.size() + program_.values.size() / 2);
        for (Op& op : old) rewrite(std::move(op));
        // Scalar results stay f32, as the host reads them; a state takes its next value in its own type.
        for (Result& result : program_.results)
            if (value(result.value).type == TensorType{compute_, {}} && value(result.value).op != none)
                result.value = cast_of(result.value, DType::f32, program_.op(value(result.value).op));
        for (Update& update : program_.updates)
            if (const DType type = value(update.target).type.dtype; type != value(update.value).type.dtype)
                update.value = cast_of(update.value, type, program_.op(value(update.value).op));
    }

private:
    const Value& value(ValueId id) const { return program_.value(id); }
    bool is_f32(ValueId id) const { return value(id).type.dtype == DType::f32; }
    bool is_matrix(ValueId id) const { return value(id).role == Role::param && value(id).type.shape.size() >= 2; }

    // Indices of f32 inputs that the op must read in the compute type. Casts and reductions read any type. Statistics
    // (letter s, such as the lse of merge) are f32 at every precision.
    std::vector<size_t> to_cast(const Op& op) const {
        std::vector<size_t> places;
        const OpDef& def = op_def(op.kind);
        if (def.casts || def.reduces) return places;
        const std::string letters = input_letters(def, op.inputs.size());
        bool low = def.product;
        for (size_t i = 0; i < op.inputs.size(); ++i) {
            const ValueId id = op.inputs[i];
            if (i < letters.size() && letters[i] == 's') continue;
            low |= value(id).type.dtype == compute_ || (is_f32(id) && is_matrix(id));
            const bool vector_of_norm = i > 0 && i <= static_cast<size_t>(def.norm_vectors);
            if (is_f32(id) && !vector_of_norm) places.push_back(i);
        }
        if (!low) places.clear();
        return places;
    }

    ValueId low_copy(ValueId id, const Op& reader) {
        if (const auto made = copies_.find(id); made != copies_.end()) return made->second;
        return copies_[id] = cast_of(id, compute_, reader);
    }

    ValueId cast_of(ValueId id, DType type, const Op& near) {
        const ValueId copy = program_.values.size();
        Op cast;
        cast.kind = "cast";
        cast.attributes = {{"dtype", std::string(name_of(type))}};
        cast.inputs = {id};
        cast.outputs = {copy};
        cast.phase = near.phase;
        cast.scope = near.scope;
        cast.origin = value(id).origin;
        Value result;
        if (!value(id).name.empty()) result.name = fmt::format("{}.{}", value(id).name, name_of(type));
        result.type = {type, value(id).type.shape};
        result.dims = value(id).dims;
        result.op = program_.ops.size();
        result.origin = value(id).origin;
        program_.values.push_back(std::move(result));
        program_.ops.push_back(std::move(cast));
        return copy;
    }

    void rewrite(Op op) {
        for (size_t i : to_cast(op)) op.inputs[i] = low_copy(op.inputs[i], op);
        // A sum to a scalar is a loss or a statistic, so it stays f32.
        const OpDef& def = op_def(op.kind);
        const bool scalar_sum = def.reduces && takes_type(def) && value(op.outputs[0]).type.shape.empty();
        if (scalar_sum && !is_f32(op.inputs[0]) && !op.attributes.has("dtype")) {
            op.attributes.set("dtype", std::string("f32"));
        }
        const std::vector<Typed> outputs = infer(def, program_, op.inputs, op.attributes, op.origin);
        for (size_t i = 0; i < outputs.size(); ++i) {
            Value& out = program_.value(op.outputs[i]);
            out.type = outputs[i].type;
            out.op = program_.ops.size();
        }
        program_.ops.push_back(std::move(op));
    }

    Program& program_;
    DType compute_;
    std::unordered_map<ValueId, ValueId> copies_;
};

}  // namespace

namespace {

/// Whether the output has the elements of the input, in another type or shape.
bool passes_on(const Op& op) { return op_def(op.kind).casts || op_def(op.kind).moves == Moves::renames; }

/// Marks GEMMs of activations with matrices of params, except those that compute the logits.
void mark_products(Program& program) {
    std::vector<char> logits(program.values.size(), 0);
    for (const Result& result : program.results) logits[result.value] = 1;
    for (size_t i = program.ops.size(); i-- > 0;) {
        Op& op = program.ops[i];
        if (op_def(op.kind).loss && !op_def(op.kind).logits) logits[op.inputs[0]] = 1;
        const bool last = logits[op.outputs[0]] != 0;
        if (last && passes_on(op)) logits[op.inputs[0]] = 1;
        const OpDef& def = op_def(op.kind);
        if (last || !def.product || def.quantized.empty() || op.attributes.flag(def.swaps.front())) continue;
        ValueId weight = op.inputs[1];
        while (program.value(weight).op != none && passes_on(program.op(program.value(weight).op)))
            weight = program.op(program.value(weight).op).inputs[0];
        if (program.value(weight).role == Role::param && program.value(op.inputs[1]).type.shape.size() == 2)
            op.attributes.set("f8", true);
    }
}

}  // namespace

void set_precision(Program& program, DType compute) {
    if (compute == DType::f32) return;
    if (compute == DType::f8e4m3) {
        set_precision(program, DType::bf16);
        return mark_products(program);
    }
    if (compute != DType::bf16 && compute != DType::f16) {
        throw Error(fmt::format("unsupported precision {}: expected f32, bf16, f16 or fp8", name_of(compute)));
    }
    for (const Op& op : program.ops) {
        if (op.phase == Phase::forward) continue;
        throw Error(op.origin, fmt::format("the precision must be set before the program is differentiated: {} is not "
                                           "a forward op",
                                           describe(program, op)));
    }
    Precision(program, compute).run();
}

}  // namespace orrery
