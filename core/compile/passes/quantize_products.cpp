#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "compile/passes/precision.h"
#include "ir/build.h"
#include "ir/op.h"

namespace orrery {

namespace {

constexpr int64_t granule = 16;  // tensor cores need dims of 8-bit GEMMs to be multiples of this

class Quantizing {
public:
    Quantizing(Program& program, const Mesh& mesh) : program_(program), mesh_(mesh) {}

    void run() {
        const std::vector<Op> old = std::move(program_.ops);
        program_.ops.clear();
        std::vector<OpId> moved;
        for (Op op : old) {
            const bool marked = op.attributes.flag("f8");
            const bool gradient =
                !marked && op.phase == Phase::backward && op.forward != none && old[op.forward].attributes.flag("f8");
            op.attributes.erase("f8");
            const Op* const forward = gradient ? &old[op.forward] : nullptr;
            if ((marked || gradient) && fits(op)) rewrite(op, forward);
            moved.push_back(program_.ops.size());
            program_.ops.push_back(std::move(op));
        }
        relink(program_, moved);
    }

private:
    struct Quantized {
        ValueId q, scale;
    };

    Shape local(ValueId id) const {
        const Value& value = program_.value(id);
        return value.layout.local_shape(value.type.shape, mesh_);
    }

    /// Whether rows and columns of both local operands are multiples of 16. Adds a remark if not.
    bool fits(const Op& op) {
        if (op_def(op.kind).quantized.empty()) return false;
        for (size_t i = 0; i < 2; ++i) {
            const Shape shape = local(op.inputs[i]);
            const int64_t last = shape.back(), rows = count_of(shape) / std::max<int64_t>(last, 1);
            if (last % granule == 0 && rows % granule == 0) continue;
            const std::string text = fmt::format(
                "its matrix products stay in 16 bits, not fp8: an operand is {} on a rank, and fp8 needs "
                "dims divisible by {}",
                text_of(shape), granule);
            if (remarked_.insert(op.scope).second) program_.note(none, op.scope + ": " + text, op.origin);
            return false;
        }
        return true;
    }

    /// Gives a GEMM 8-bit operands. `forward`: the forward GEMM if `op` computes a gradient of it; one operand is then
    /// a gradient: the second for the gradient of a weight that is not transposed, otherwise the first.
    void rewrite(Op& op, const Op* forward) {
        const OpDef& def = op_def(op.kind);
        const bool weight = !def.product;
        const size_t gradient = weight && !forward->attributes.flag(op_def(forward->kind).swaps.back()) ? 1 : 0;
        Quantized operands[2];
        for (size_t i = 0; i < 2; ++i) {
            const bool of_gradient = forward != nullptr && i == gradient;
            operands[i] = quantized(op.inputs[i], of_gradient ? DType::f8e5m2 : DType::f8e4m3, op);
        }
        op.kind = def.quantized;
        op.inputs[0] = operands[0].q;
        op.inputs[1] = operands[1].q;
        op.inputs.insert(op.inputs.begin() + 2, {operands[0].scale, operands[1].scale});
        const DType made = program_.value(op.outputs[0]).type.dtype;
        if (made != (weight ? DType::f32 : DType::bf16)) op.attributes.set("dtype", std::string(name_of(made)));
    }

    ValueId add_value(const Value& like, TensorType type, Layout layout, std::vector<std::string> dims) {
        Value value;
        value.type = std::move(type);
        value.dims = std::move(dims);
        value.layout = std::move(layout);
        value.causes = like.causes;
        value.origin = like.origin;
        program_.values.push_back(std::move(value));
        return std::ssize(program_.values) - 1;
    }

    /// The 8-bit copy of a value, one per stage and type: the backward pass reads the copy of the forward pass.
    Quantized quantized(ValueId id, DType type, const Op& reader) {
        const auto [place, fresh] = made_.try_emplace({id, type, reader.stage});
        if (!fresh) return place->second;
        const Value of = program_.value(id);
        place->second.q = add_value(of, {type, of.type.shape}, of.layout, of.dims);
        place->second.scale = add_value(of, {DType::f32, {}}, Layout(0), {});
        Op op;
        op.kind = "quantize";
        op.attributes = {{"dtype", std::string(name_of(type))}};
        op.inputs = {id};
        op.outputs = {place->second.q, place->second.scale};
        op.phase = reader.phase;
        op.scope = reader.scope;
        op.stage = reader.stage;
        op.origin = reader.origin;
        program_.ops.push_back(std::move(op));
        return place->second;
    }

    Program& program_;
    const Mesh& mesh_;
    std::map<std::tuple<ValueId, DType, int>, Quantized> made_;
    std::set<std::string> remarked_;
};

}  // namespace

void quantize_products(Program& program, const Mesh& mesh) { Quantizing(program, mesh).run(); }

}  // namespace orrery
