// GEMMs with 8-bit float operands. An operand has one scale per rank, from the largest magnitude of the part that the
// rank holds (current scaling, per tensor: Micikevicius et al. 2022, FP8 Formats for Deep Learning; NVIDIA Transformer
// Engine, Float8CurrentScaling). The pass quantize_products inserts them after quantize. No device plugin here has
// kernels.
#include <fmt/format.h>

#include "ir/ops/common.h"

namespace orrery::ops {

namespace {

void expect_f8(const Infer& at, size_t operand) {
    if (!is_f8(at.dtype(operand))) at.fail(fmt::format("{} is no float of 8 bits", at.show(operand)), "quantize it");
}

void expect_operands(const Infer& at) {
    expect_f8(at, 0);
    expect_f8(at, 1);
    for (size_t scale : {2u, 3u}) at.expect_rank(scale, 0, 0);
}

/// The 16-bit GEMM that an 8-bit one replaces, for its factor rule and FLOPs.
const OpDef& plain(const Op& op) { return op_def(op.kind == "matmul_quantized" ? "matmul" : "matmul_dw"); }

struct PairPlaces {
    size_t am, ak, bk, bn;
};

PairPlaces pair_places(const Attributes& attributes, size_t rank_a) {
    PairPlaces at{rank_a - 2, rank_a - 1, 0, 1};
    if (attributes.flag("trans_a")) std::swap(at.am, at.ak);
    if (attributes.flag("trans_b")) std::swap(at.bk, at.bn);
    return at;
}

/// matmul_quantized: a [...,m,k], b [k,n] -> y [...,m,n]; y is bf16 unless `dtype` is given.
std::vector<Typed> infer_matmul_quantized(Infer& at) {
    expect_operands(at);
    at.expect_rank(0, 2);
    at.expect_rank(1, 2, 2);
    if (at.rank(0) > 2 && at.attributes.flag("trans_a")) at.fail(fmt::format("trans_a of {}", at.show(0)));
    const PairPlaces p = pair_places(at.attributes, at.rank(0));
    at.same_dim(0, p.ak, 1, p.bk, "inner dims");
    Typed y = at.typed(0);
    const size_t m = y.type.shape.size() - 2;
    y.type.shape[m] = at.shape(0)[p.am];
    y.dims[m] = at.dims(0)[p.am];
    y.type.shape[m + 1] = at.shape(1)[p.bn];
    y.dims[m + 1] = at.dims(1)[p.bn];
    y.type.dtype = at.dtype_attribute(DType::bf16);
    if (at.count() > 4) {
        at.expect_rank(4, 1, 1);
        y.dims.back() = at.same_dim(1, p.bn, 4, 0, "bias and columns");
    }
    return {y};
}

/// The 8-bit gradient of a weight: a [...,k], dy [...,n] -> dw [k,n].
std::vector<Typed> infer_dw_f8(Infer& at) {
    expect_operands(at);
    at.expect_rank(0, 1);
    if (at.rank(0) != at.rank(1)) at.fail(fmt::format("leading dims differ: {} and {}", at.show(0), at.show(1)));
    for (int d = 0; d + 1 < at.rank(0); ++d) at.same_dim(0, d, 1, d, "leading dims");
    return {make_typed(at.dtype_attribute(DType::f32), {at.shape(0).back(), at.shape(1).back()},
                       {at.dims(0).back(), at.dims(1).back()})};
}

/// The factor rule of the 16-bit GEMM, but no dim may be split, as a scale belongs to a whole operand.
FactorRule f8_rule(const Program& program, const Op& op) {
    Op like = op;
    like.inputs.erase(like.inputs.begin() + 2, like.inputs.begin() + 4);
    FactorRule rule = plain(op).rule(program, like);
    for (Factor& factor : rule.factors) factor.kind = Factor::Kind::whole;
    rule.inputs.insert(rule.inputs.begin() + 2, 2, {});
    rule.added_once.clear();
    rule.linear_in.clear();
    return rule;
}

int64_t f8_flops(const Program& program, const Op& op) { return plain(op).flops(program, op); }

}  // namespace

std::vector<OpDef> f8_ops() {
    return {
        {.name = "matmul_quantized",
         .operands = {"a", "b", "scale_a", "scale_b", "bias?"},
         .types = "* * s s F? -> F",
         .attributes = {flag("trans_a"), flag("trans_b"), text("dtype")},
         .infer = infer_matmul_quantized,
         .rule = f8_rule,
         .flops = f8_flops,
         .elsewhere = true,
         .accumulates = {0},
         .product = true,
         .work = Work::product},
        {.name = "matmul_dw_quantized",
         .operands = {"a", "dy", "scale_a", "scale_dy"},
         .types = "* * s s -> F",
         .attributes = {text("dtype")},
         .infer = infer_dw_f8,
         .rule = f8_rule,
         .flops = f8_flops,
         .elsewhere = true,
         .accumulates = {0},
         .work = Work::weight_product},
    };
}

}  // namespace orrery::ops
