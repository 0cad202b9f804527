// Ops of codecs: elements as codes of few bits with a scale for each block, the largest elements of each block, and
// orthonormal factors of matrices.
// Blocks are counted along the last dim, so a script or pass reshapes what it encodes to [.., parts, elements]; the
// last block of a row may be shorter. kernels/codes.h has the formulas and the bounds of the error. None has a
// gradient.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "ir/ops/common.h"

namespace orrery::ops {

namespace {

int64_t blocks_of(int64_t size, int64_t block) { return (size + block - 1) / block; }

/// The attribute `bits` of codes of `type`; 8 when it is absent.
int64_t code_bits(const Infer& at, DType type) {
    const int64_t bits = at.attributes.has("bits") ? at.attributes.integer("bits") : 8;
    if (bits != 8 && bits != 4 && bits != 2 && bits != 1) at.fail(fmt::format("bits = {}", bits), "give 8, 4, 2 or 1");
    if (bits != 8 && type != DType::i8)
        at.fail(fmt::format("bits = {} with dtype {}", bits, name_of(type)), "use dtype = i8");
    return bits;
}

/// The scales of operand 0: one for each block along its last dim, or without the attribute `block` one.
Typed scales_of(const Infer& at, DType type) {
    if (!at.attributes.has("block")) return make_typed(type, {}, {});
    const int64_t block = at.attributes.integer("block");
    if (block < 1 || block > int64_t{1} << 40)  // blocks_of adds it to a size
        at.fail(fmt::format("block = {} is out of range: expected 1 to 2^40", block));
    at.expect_rank(0, 1);
    Typed scales = at.typed(0);
    scales.type.dtype = type;
    scales.type.shape.back() = blocks_of(scales.type.shape.back(), block);
    scales.dims.back().clear();
    return scales;
}

/// quantize: x of f32, bf16 or f16 -> q of 8 bits, and scales. A whole tensor's, and the mean magnitude that one bit
/// stands for, are f32; others bf16.
std::vector<Typed> infer_quantize(Infer& at) {
    const DType type = at.dtype_attribute(DType::f8e4m3);
    if (!is_f8(type) && type != DType::i8)
        at.fail(fmt::format("dtype is {}", name_of(type)), "give i8, f8e4m3 or f8e5m2");
    const bool wide = code_bits(at, type) == 1 || !at.attributes.has("block");
    return {make_typed(type, at.shape(0), at.dims(0)), scales_of(at, wide ? DType::f32 : DType::bf16)};
}

std::vector<Typed> infer_dequantize(Infer& at) {
    if (!is_f8(at.dtype(0)) && at.dtype(0) != DType::i8)
        at.fail(fmt::format("{} is neither i8 nor a float of 8 bits", at.show(0)), "quantize it");
    code_bits(at, at.dtype(0));
    const Typed scales = scales_of(at, at.dtype(1));
    if (at.shape(1) != scales.type.shape)
        at.fail(fmt::format("{} is not one scale for each block of {}", at.show(1), at.show(0)),
                fmt::format("expected {}", text_of(scales.type.shape)));
    Typed y = at.typed(0);
    y.type.dtype = at.dtype_attribute(DType::f32);
    for (int d = 0; d + 1 < at.rank(1); ++d) y.dims[d] = at.unify(0, d, 1, d);
    return {y};
}

/// The factor rule of ops on rows with different last dims, which must be whole. `whole_rows`: so must all others.
FactorRule rows_rule(const Program& program, const Op& op, bool whole_rows) {
    RuleMaker make;
    FactorRule::Dims shared;
    const Shape& x = shape_of(program, op.inputs[0]);
    for (size_t d = 0; d + 1 < x.size(); ++d) shared.push_back(whole_rows ? make.whole(x[d]) : make.parallel(x[d]));
    const std::vector<int> last = x.empty() ? std::vector<int>{} : make.whole(x.back());
    const auto dims_of = [&](ValueId id) {
        const Shape& shape = shape_of(program, id);
        if (shape.empty()) return FactorRule::Dims{};
        FactorRule::Dims dims = shared;
        if (shape == x) dims.push_back(last);
        for (size_t d = dims.size(); d < shape.size(); ++d) dims.push_back(make.whole(shape[d]));
        return dims;
    };
    for (ValueId id : op.inputs) make.rule.inputs.push_back(dims_of(id));
    for (ValueId id : op.outputs) make.rule.outputs.push_back(dims_of(id));
    return make.rule;
}

/// No dim of a tensor with one scale may be split, since a rank with a part of it would compute another.
FactorRule scaled_rule(const Program& program, const Op& op) {
    return rows_rule(program, op, !op.attributes.has("block"));
}

FactorRule plain_rows_rule(const Program& program, const Op& op) { return rows_rule(program, op, false); }

/// Three FLOPs per element: comparison for the largest magnitude, multiplication, rounding.
int64_t quantize_flops(const Program& program, const Op& op) { return 3 * program.value(op.inputs[0]).type.count(); }

int64_t packed_bits(const Infer& at) {
    const int64_t bits = at.attributes.integer("bits");
    if (bits != 4 && bits != 2 && bits != 1) at.fail(fmt::format("bits = {}", bits), "give 4, 2 or 1");
    at.expect_rank(0, 1);
    return bits;
}

int64_t packed_bytes(int64_t size, int64_t bits) { return (size * bits + 7) / 8; }

Typed with_last(const Infer& at, DType type, int64_t size) {
    Typed y = at.typed(0);
    y.type.dtype = type;
    y.type.shape.back() = size;
    y.dims.back().clear();
    return y;
}

std::vector<Typed> infer_pack(Infer& at) {
    const int64_t bits = packed_bits(at);
    return {with_last(at, DType::u8, packed_bytes(at.shape(0).back(), bits))};
}

std::vector<Typed> infer_unpack(Infer& at) {
    const int64_t bits = packed_bits(at), size = at.attributes.integer("size");
    if (size < 1 || packed_bytes(size, bits) != at.shape(0).back())
        at.fail(fmt::format("size = {} of {} bits is not what the rows of {} hold", size, bits, at.show(0)),
                "give the last size of what was packed");
    return {with_last(at, DType::i8, size)};
}

std::vector<Typed> infer_block_top_k(Infer& at) {
    at.expect_rank(0, 1);
    const int64_t k = at.attributes.integer("k"), block = at.attributes.integer("block");
    if (block < 1 || block > 1 << 24)  // counts of more are not exact in f32
        at.fail(fmt::format("block = {} is out of range: expected 1 to 2^24", block));
    if (k < 1 || k > block) at.fail(fmt::format("k = {} is out of range: expected 1 to the block's {}", k, block));
    Typed values = with_last(at, at.dtype(0), blocks_of(at.shape(0).back(), block));
    values.type.shape.push_back(k);
    values.dims.emplace_back();
    Typed ids = values;
    ids.type.dtype = DType::i32;
    return {values, ids};
}

/// Pairs what only one of two choices of a block has, with what only the other one has.
std::vector<Rivals> other_choices(const Attributes& attributes, std::span<const Shape> operands, const Tensor& want,
                                  const Tensor& have) {
    const int64_t block = attributes.integer("block"), k = want.shape.back(), size = operands[0].back();
    const int64_t blocks = blocks_of(size, block);
    std::vector<Rivals> found;
    for (int64_t b = 0; b < want.count() / k; ++b) {
        const auto *ids = static_cast<const int32_t*>(want.data) + b * k,
                   *others = static_cast<const int32_t*>(have.data) + b * k;
        const int64_t first = b / blocks * size + b % blocks * block, left = size - b % blocks * block;
        const auto missing = [&](const int32_t* of, const int32_t* in) {
            std::vector<int64_t> places;
            for (int64_t j = 0; j < k; ++j)
                if (std::find(in, in + k, of[j]) == in + k) places.push_back(j);
            return places;
        };
        const std::vector<int64_t> gone = missing(ids, others), come = missing(others, ids);
        if (gone.size() != come.size()) return {};
        for (size_t i = 0; i < gone.size(); ++i) {
            const int64_t one = ids[gone[i]], other = others[come[i]];
            if (std::min(one, other) < 0 || std::max(one, other) >= std::min(left, block)) return {};
            found.push_back({b * k + gone[i], first + one, first + other});
        }
    }
    return found;
}

std::vector<Typed> infer_orthogonalize(Infer& at) {
    at.expect_rank(0, 2);
    if (at.shape(0).back() > 256) at.fail(fmt::format("{} has more than 256 columns", at.show(0)));
    return {at.typed(0)};
}

/// Each matrix must be whole.
FactorRule matrices_rule(const Program& program, const Op& op) {
    RuleMaker make;
    const Shape& x = shape_of(program, op.inputs[0]);
    FactorRule::Dims dims;
    for (size_t d = 0; d < x.size(); ++d) dims.push_back(d + 2 < x.size() ? make.parallel(x[d]) : make.whole(x[d]));
    make.rule.inputs = make.rule.outputs = {dims};
    return make.rule;
}

/// Twice the products of all columns, and theirs with a matrix.
int64_t orthogonalize_flops(const Program& program, const Op& op) {
    const TensorType& x = program.value(op.inputs[0]).type;
    return 4 * x.count() * x.shape.back();
}

const std::string int8 = "i8";

Samples quantizations() {
    const auto coded = [](std::string dtype, int64_t block, int64_t bits) {
        Attributes attributes{{"dtype", std::move(dtype)}, {"block", block}};
        if (bits < 8) attributes.set("bits", bits);
        return attributes;
    };
    return {{.operands = {f32({4, 33})}, .attributes = coded(int8, 8, 8)},
            {.operands = {f32({2, 6, 15})}, .attributes = coded(int8, 15, 4)},
            {.operands = {f32({4, 33})}, .attributes = coded(int8, 64, 2)},
            {.operands = {f32({33})}, .attributes = coded(int8, 16, 1)},
            {.operands = {f32({4, 33})}, .attributes = coded("f8e4m3", 32, 8)},
            {.operands = {f32({9, 6})}, .attributes = coded("f8e5m2", 4, 8)},
            {.operands = {f32({4, 9})}, .attributes = {{"dtype", std::string("f8e4m3")}}},
            {.operands = {f32({4, 9})}, .attributes = {{"dtype", int8}, {"bits", int64_t{1}}}}};
}
Samples dequantizations() {
    const auto coded = [](int64_t block, int64_t bits) { return Attributes{{"block", block}, {"bits", bits}}; };
    const Draw scale{0.1, 1};
    return {{.operands = {i8({4, 33}), f32({4, 5})}, .attributes = coded(8, 8), .draws = {Draw{-127, 127}, scale}},
            {.operands = {i8({2, 6, 15}), f32({2, 6, 1})}, .attributes = coded(15, 4), .draws = {Draw{-7, 7}, scale}},
            {.operands = {i8({4, 33}), f32({4, 3})}, .attributes = coded(16, 2), .draws = {Draw{-2, 1}, scale}},
            {.operands = {i8({33}), f32({2})}, .attributes = coded(32, 1), .draws = {Draw{-1, 0}, scale}},
            {.operands = {{DType::f8e4m3, {4, 33}}, f32({4, 2})},
             .attributes = {{"block", int64_t{32}}, {"dtype", std::string("bf16")}},
             .draws = {Draw{0, 120}, scale}},
            {.operands = {{DType::f8e5m2, {9, 6}}, f32({})}, .draws = {Draw{0, 120}, scale}}};
}
Samples packings() {
    const auto of = [](int64_t bits) { return Attributes{{"bits", bits}}; };
    return {{.operands = {i8({4, 33})}, .attributes = of(4), .draws = {Draw{-8, 7}}},
            {.operands = {i8({2, 6, 15})}, .attributes = of(2), .draws = {Draw{-2, 1}}},
            {.operands = {i8({33})}, .attributes = of(1), .draws = {Draw{-1, 0}}}};
}
Samples unpackings() {
    const auto of = [](int64_t bits, int64_t size) { return Attributes{{"bits", bits}, {"size", size}}; };
    const Draw bytes{0, 255};
    return {{.operands = {u8({4, 17})}, .attributes = of(4, 33), .draws = {bytes}},
            {.operands = {u8({2, 6, 4})}, .attributes = of(2, 15), .draws = {bytes}},
            {.operands = {u8({5})}, .attributes = of(1, 33), .draws = {bytes}}};
}
Samples factors() { return {{.operands = {f32({9, 4})}}, {.operands = {f32({2, 6, 3})}}}; }
Samples largest_of_blocks() {
    const auto of = [](int64_t k, int64_t block) { return Attributes{{"k", k}, {"block", block}}; };
    return {{.operands = {f32({4, 33})}, .attributes = of(3, 8)},
            {.operands = {f32({2, 6, 15})}, .attributes = of(6, 6)},
            {.operands = {f32({33})}, .attributes = of(2, 64)}};
}

}  // namespace

std::vector<OpDef> code_ops() {
    return {
        {.name = "quantize",
         .operands = {"x"},
         .types = "F -> * F",
         .attributes = {text("dtype"), integer("block"), integer("bits")},
         .infer = infer_quantize,
         .rule = scaled_rule,
         .flops = quantize_flops,
         .samples = quantizations},
        {.name = "dequantize",
         .operands = {"q", "scales"},
         .types = "* F -> F",
         .attributes = {integer("block"), integer("bits"), text("dtype")},
         .infer = infer_dequantize,
         .rule = scaled_rule,
         .flops = one_flop,
         .samples = dequantizations},
        {.name = "pack",
         .operands = {"q"},
         .types = "c -> b",
         .attributes = {required(integer("bits"))},
         .infer = infer_pack,
         .rule = plain_rows_rule,
         .flops = no_flops,
         .samples = packings},
        {.name = "unpack",
         .operands = {"x"},
         .types = "b -> c",
         .attributes = {required(integer("bits")), required(integer("size"))},
         .infer = infer_unpack,
         .rule = plain_rows_rule,
         .flops = no_flops,
         .samples = unpackings},
        {.name = "block_top_k",
         .operands = {"x"},
         .types = "f -> f i",
         .attributes = {required(integer("k")), integer("block", int64_t{4096})},
         .infer = infer_block_top_k,
         .rule = plain_rows_rule,
         .flops = input_flops,
         .choice = FloatChoice{1, {0, 0}, other_choices},
         .samples = largest_of_blocks},
        {.name = "orthogonalize",
         .operands = {"x"},
         .types = "s -> s",
         .infer = infer_orthogonalize,
         .rule = matrices_rule,
         .flops = orthogonalize_flops,
         .in_place = {{0, 0}},
         .samples = factors},
    };
}

}  // namespace orrery::ops
