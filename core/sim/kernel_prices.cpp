#include "sim/kernel_prices.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "ir/op.h"

namespace orrery {
namespace {

double size(const Shape& shape, size_t from_end) {
    return shape.size() < from_end ? 1 : static_cast<double>(shape[shape.size() - from_end]);
}

double bytes_of(const KernelSpec& spec) {
    double bytes = 0;
    for (const auto* operands : {&spec.inputs, &spec.outputs})
        for (const TensorType& type : *operands) bytes += static_cast<double>(type.bytes());
    return bytes;
}

double leading(const Shape& shape, size_t last) {
    double count = 1;
    for (size_t i = 0; i + last < shape.size(); ++i) count *= static_cast<double>(shape[i]);
    return count;
}

void read_product(const KernelSpec& spec, KernelWork& work) {
    const Shape &a = spec.inputs[0].shape, &b = spec.inputs[1].shape;
    if (work.work == Work::weight_product) {
        work.batch = spec.outputs.empty() ? 1 : leading(spec.outputs[0].shape, 2);  // of experts: one matrix each
        work.m = size(a, 1), work.n = size(b, 1), work.k = leading(a, 1) / work.batch;
        return;
    }
    const bool trans_a = spec.attributes.flag("trans_a"), trans_b = spec.attributes.flag("trans_b");
    work.m = size(a, trans_a ? 1 : 2), work.n = size(b, trans_b ? 2 : 1), work.k = size(a, trans_a ? 2 : 1);
    work.batch = b.size() > 2 ? leading(b, 2) : trans_a ? leading(a, 2) : 1;
    // Leading dims of `a` that `b` lacks share it; rows sorted by expert share the matrices of `b` evenly.
    if (!trans_a) work.m = leading(a, 1) / work.batch;
}

/// The logits of a tile stay in caches or are read and written about four times; all of them are counted so.
void read_tiled_loss(const KernelSpec& spec, KernelWork& work) {
    const TensorType &x = spec.inputs[0], &head = spec.inputs[1];
    work.m = leading(x.shape, 1), work.k = size(x.shape, 1);
    work.n = static_cast<double>(head.count()) / work.k;
    const auto is_gradient = [&](const TensorType& output) { return output.shape == head.shape; };
    work.batch = std::ranges::any_of(spec.outputs, is_gradient) ? 3 : 1;
    work.bytes += 4 * work.m * work.n * static_cast<double>(size_of(x.dtype));
}

void read_attention(const KernelSpec& spec, KernelWork& work) {
    const Shape &q = spec.inputs[0].shape, &key = spec.inputs[1].shape;
    work.batch = size(q, 4), work.rows = size(q, 3), work.heads = size(q, 2), work.head = size(q, 1);
    work.columns = size(key, 3);
    if (spec.inputs.size() > 2) work.head = (work.head + size(spec.inputs[2].shape, 1)) / 2;
    const auto number = [&](std::string_view name) { return static_cast<double>(spec.attributes.integer(name)); };
    const double window = number("window"), rolled = number("rolled");
    if (spec.attributes.has("blocks")) {
        const Shape all = spec.attributes.has("global_shape") ? spec.attributes.integers("global_shape") : q;
        work.columns /= std::max(1.0, work.rows * number("blocks") / size(all, 3));  // the keys of one block
    }
    work.seen = work.rows * work.columns;
    if (rolled > 0) {  // on the busiest ranks: keys of an earlier block, as far as the window reaches
        const double rest = window > 0 ? std::clamp(work.columns + rolled - window, 0.0, 2 * work.columns) : 0;
        const double share = rest / work.columns;
        work.seen *= share < 1 ? 1 - share * share / 2 : (2 - share) * (2 - share) / 2;
        return;
    }
    if (!spec.attributes.flag("causal")) return;
    // With an index, equal work is assumed: each rank sees half of the scores. What documents mask is not known.
    // Without one, a rank has a contiguous part of the row, and the last rank, for which the others wait, sees all
    // keys but its own triangle.
    const bool indexed = spec.inputs.size() >= (work.work == Work::attention ? 7 : 10);
    if (window > 0 && window < work.columns)
        work.seen = work.rows * window - window * window / 2 * (work.rows / work.columns);
    else
        work.seen -= indexed ? work.seen / 2 : work.rows * std::min(work.rows, work.columns) / 2;
}

/// Sizes of output tiles in matrix libraries, and the fraction of the rate that each reaches because of data reuse.
struct Tile {
    double rows, columns, share;
};
constexpr std::array<Tile, 6> tiles = {
    {{256, 128, 1.0}, {128, 256, 1.0}, {128, 128, 0.96}, {128, 64, 0.85}, {64, 64, 0.7}, {16, 128, 0.35}}};

}  // namespace

bool multiplies(Work work) {
    return work == Work::product || work == Work::weight_product || work == Work::attention ||
           work == Work::attention_gradient || work == Work::tiled_loss;
}

KernelWork work_of(const KernelSpec& spec) {
    const OpDef* def = find_op_def(spec.op);
    KernelWork work;
    work.work = def ? def->work : Work::bytes;
    work.bytes = bytes_of(spec);
    if (!spec.inputs.empty()) {
        work.type = spec.inputs[0].dtype;
        work.first = static_cast<double>(spec.inputs[0].count());
    }
    // A kernel in a cost table may have fewer operands than the op declares.
    if ((multiplies(work.work) && spec.inputs.size() < 2) || (work.work == Work::rows && spec.outputs.empty()))
        work.work = Work::bytes;
    if (work.work == Work::product || work.work == Work::weight_product) read_product(spec, work);
    if (work.work == Work::attention || work.work == Work::attention_gradient) read_attention(spec, work);
    if (work.work == Work::tiled_loss) read_tiled_loss(spec, work);
    if (work.work == Work::rows) work.bytes = 2 * static_cast<double>(spec.outputs[0].bytes());
    return work;
}

KernelPrices::KernelPrices(AcceleratorRates rates, KernelSoftware software)
    : rates_(std::move(rates)), software_(software) {
    if (rates_.exponentials_per_s == 0)
        rates_.exponentials_per_s = 16 * 1.5e9 * static_cast<double>(rates_.multiprocessors);
}

double KernelPrices::modelled(const KernelWork& work) const {
    if (work.work == Work::product || work.work == Work::weight_product || work.work == Work::tiled_loss)
        return products_of(work);
    if (work.work == Work::attention || work.work == Work::attention_gradient) return attention(work);
    return software_.launch_s + (work.work == Work::once ? 1 : software_.passes) * stream(work.bytes);
}

double KernelPrices::copy_seconds(int64_t bytes) const {
    return software_.launch_s + stream(2 * static_cast<double>(bytes));
}

double KernelPrices::product(double batch, double m, double n, double k, double flops_per_s) const {
    const double units = static_cast<double>(rates_.multiprocessors);
    double best = INFINITY;
    for (const Tile& tile : tiles) {
        const double count = batch * std::ceil(m / tile.rows) * std::ceil(n / tile.columns);
        for (double cuts = 1; cuts <= 64 && cuts * 256 <= std::max(k, 256.0); cuts *= 2) {
            if (cuts > 1 && count * cuts / 2 >= units) break;  // the last wave of tiles is full without this split
            const double wave =
                2 * tile.rows * tile.columns * (k / cuts + software_.ramp) * units / (flops_per_s * tile.share);
            const double sums = cuts > 1 ? stream(8 * cuts * batch * m * n) : 0;  // writes and reads f32 partial sums
            best = std::min(best, std::ceil(count * cuts / units) * wave + sums);
        }
    }
    return best;
}

double KernelPrices::matrix_rate(DType type) const {
    const auto stated = [&](double rate, double otherwise) { return rate > 0 ? rate : otherwise; };
    double rate = rates_.matrix_flops;
    if (type == DType::f16) rate = stated(rates_.f16_flops, rate);
    if (type == DType::f32) rate = stated(rates_.f32_flops, 0.5 * rate);
    if (type == DType::f64) rate = stated(rates_.f64_flops, 0.0625 * rate);
    if (type == DType::f8e4m3 || type == DType::f8e5m2) rate = rates_.eight_bit_flops * software_.eight_bit_share;
    if (rate > 0) return rate * rates_.matrix_share;
    if (type == DType::f8e4m3 || type == DType::f8e5m2)
        throw Error(
            fmt::format("{} does not support fp8 matrix products\n  take another accelerator, or train.precision = "
                        "\"bf16\"",
                        rates_.name));
    throw Error(
        fmt::format("{} has no rate for matrix products of {}\n  give it in [accelerator.{}.dense_tflops] of the "
                    "cluster's file",
                    rates_.name, name_of(type), rates_.name));
}

double KernelPrices::products_of(const KernelWork& work) const {
    const bool half = work.type == DType::bf16 || work.type == DType::f16;
    const auto is_wide = [&](double dim) { return software_.wide > 0 && dim == static_cast<double>(software_.wide); };
    const bool narrow = half && software_.eight_bit && work.work != Work::tiled_loss && rates_.eight_bit_flops > 0 &&
                        !is_wide(work.m) && !is_wide(work.n) && !is_wide(work.k);
    // A plan with 8-bit matrix products has casts as kernels; for a 16-bit plan, the software's casts are added here.
    const double rate = matrix_rate(narrow ? DType::f8e4m3 : work.type);
    double casts = 0;
    if (narrow) {
        // Casts read activations and gradients once in 16 bits and write them in 8 bits, as they are and transposed;
        // weight-gradient matmuls reuse the results.
        if (work.work == Work::product) {
            casts = software_.launch_s + software_.passes * stream(4 * work.first);
            // A weight is cast for the forward pass, as it is and transposed, which the backward pass reuses.
            if (software_.casts_weights) casts += software_.launch_s / 2 + stream(2 * work.batch * work.n * work.k);
        }
    }
    return software_.launch_s + casts + std::max(product(work.batch, work.m, work.n, work.k, rate), stream(work.bytes));
}

double KernelPrices::attention(const KernelWork& work) const {
    const bool backward = work.work == Work::attention_gradient;
    const double rated = matrix_rate(work.type);
    if (software_.separate_attention) return separate(work, rated, backward);
    const double scores = work.batch * work.heads * work.seen;
    const double share = software_.attention_share * (software_.own_attention ? 1 : rates_.older_code_share);
    const double rate = rated * share;
    const double products = (backward ? 10 : 4) * scores * work.head / rate;
    const double busy = products + scores / rates_.exponentials_per_s;
    return (backward ? 2 : 1) * software_.launch_s + std::max(busy, stream(work.bytes));
}

/// Seconds of attention as separate kernels with scores in 16 bits. Scaled masked softmax and dropout are one kernel
/// each (Megatron-LM of 2022).
double KernelPrices::separate(const KernelWork& work, double rate, bool backward) const {
    const auto [rows, columns, head] = std::array{work.rows, work.columns, work.head};
    const double each = work.batch * work.heads, scores = each * rows * columns;
    const double bytes = 2 * (scores + each * head * (rows + columns));
    const double wide = std::max(product(each, rows, columns, head, rate), stream(bytes));  // time to compute scores
    const double deep = std::max(product(each, rows, head, columns, rate), stream(bytes));  // time to apply scores
    const double rest = backward ? stream(5 * scores) + stream(6 * scores) : stream(4 * scores) + stream(5 * scores);
    return (backward ? 6 : 4) * software_.launch_s + (backward ? wide + 3 * deep : wide + deep) + rest;
}

}  // namespace orrery
