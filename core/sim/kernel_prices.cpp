#include "sim/kernel_prices.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "ir/op.h"

namespace orrery {
namespace {

/// A product as three sizes, with what else of its tensors matters.
struct Product {
    double batch = 1, m = 0, n = 0, k = 0;
    bool found = false;
};

double size(const Shape& shape, size_t from_end) {
    return shape.size() < from_end ? 1 : static_cast<double>(shape[shape.size() - from_end]);
}

double leading(const Shape& shape, size_t last) {
    double count = 1;
    for (size_t i = 0; i + last < shape.size(); ++i) count *= static_cast<double>(shape[i]);
    return count;
}

double bytes_of(const KernelSpec& spec) {
    double bytes = 0;
    for (const auto* operands : {&spec.inputs, &spec.outputs})
        for (const TensorType& type : *operands) bytes += static_cast<double>(type.bytes());
    return bytes;
}

/// Of an op that nobody knows, as a copy between devices, the bytes.
Work work_of(const KernelSpec& spec) {
    const OpDef* def = find_op_def(spec.op);
    return def ? def->work : Work::bytes;
}

/// Of matmul and what `fuse` makes of it; of the products that make gradients of weights.
Product product_of(const KernelSpec& spec) {
    const Work work = work_of(spec);
    if ((work != Work::product && work != Work::weight_product) || spec.inputs.size() < 2) return {};
    const Shape &a = spec.inputs[0].shape, &b = spec.inputs[1].shape;
    if (work == Work::weight_product) return {1, size(a, 1), size(b, 1), leading(a, 1), true};
    const bool trans_a = spec.attributes.flag("trans_a"), trans_b = spec.attributes.flag("trans_b");
    Product p{1, size(a, trans_a ? 1 : 2), size(b, trans_b ? 2 : 1), size(a, trans_a ? 2 : 1), true};
    if (b.size() <= 2 && !trans_a)
        p.m = leading(a, 1);  // b is shared by all leading dims
    else
        p.batch = leading(a, 2);
    return p;
}

/// Output tiles that libraries have, and the part of the rate that each reaches for want of reuse.
struct Tile {
    double rows, columns, share;
};
constexpr std::array<Tile, 5> tiles = {
    {{256, 128, 1.0}, {128, 256, 1.0}, {128, 128, 0.96}, {128, 64, 0.85}, {64, 64, 0.7}}};

}  // namespace

std::string text_of(const KernelSpec& spec) {
    std::string text = spec.op;
    for (const auto& [key, value] : spec.attributes.items()) {
        text += " " + key + "=";
        std::visit(
            [&](const auto& v) {
                using T = std::decay_t<decltype(v)>;
                if constexpr (std::is_same_v<T, std::vector<int64_t>>)
                    text += orrery::text_of(static_cast<const Shape&>(v));
                else
                    text += fmt::format("{}", v);
            },
            value);
    }
    for (const TensorType& type : spec.inputs) text += " " + type.text();
    text += " ->";
    for (const TensorType& type : spec.outputs) text += " " + type.text();
    return text;
}

KernelPrices::KernelPrices(AcceleratorRates rates, KernelSoftware software, std::vector<MeasuredKernel> measured)
    : rates_(std::move(rates)), software_(software) {
    if (rates_.exponentials_per_s == 0)
        rates_.exponentials_per_s = 16 * 1.5e9 * static_cast<double>(rates_.multiprocessors);
    for (const MeasuredKernel& one : measured) {
        if (one.seconds <= 0) continue;
        exact_[text_of(one.spec)] = one.seconds;
        by_op_[one.spec.op].push_back({std::log(modelled(one.spec)), modelled(one.spec) / one.seconds});
    }
    for (auto& [op, points] : by_op_)
        std::sort(points.begin(), points.end(), [](const Point& a, const Point& b) { return a.work < b.work; });
}

double KernelPrices::seconds(const KernelSpec& spec) const {
    if (!exact_.empty()) {
        if (const auto found = exact_.find(text_of(spec)); found != exact_.end()) return found->second;
        if (const auto op = by_op_.find(spec.op); op != by_op_.end()) {
            const double formula = modelled(spec);
            return formula / interpolated(op->second, std::log(formula));
        }
    }
    return modelled(spec);
}

/// Between the two neighbours by their logarithms; beyond the ends what these have.
double KernelPrices::interpolated(const std::vector<Point>& points, double work) const {
    const auto above = std::lower_bound(points.begin(), points.end(), work,
                                        [](const Point& point, double value) { return point.work < value; });
    if (above == points.begin()) return points.front().efficiency;
    if (above == points.end()) return points.back().efficiency;
    const Point &low = *std::prev(above), &high = *above;
    const double part = (work - low.work) / std::max(high.work - low.work, 1e-9);
    return std::exp((1 - part) * std::log(low.efficiency) + part * std::log(high.efficiency));
}

double KernelPrices::modelled(const KernelSpec& spec) const {
    if (product_of(spec).found) return products_of(spec);
    const Work work = work_of(spec);
    if (work == Work::attention || work == Work::attention_gradient)
        return attention(spec, work == Work::attention_gradient);
    const double passes = work == Work::once ? 1 : software_.passes;
    if (work == Work::rows)
        return software_.launch_s + passes * stream(2 * static_cast<double>(spec.outputs[0].bytes()));
    return software_.launch_s + passes * stream(bytes_of(spec));
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
            if (cuts > 1 && count * cuts / 2 >= units) break;  // one wave is full without this cut
            const double wave =
                2 * tile.rows * tile.columns * (k / cuts + software_.ramp) * units / (flops_per_s * tile.share);
            const double sums = cuts > 1 ? stream(8 * cuts * batch * m * n) : 0;  // partial sums in f32
            best = std::min(best, std::ceil(count * cuts / units) * wave + sums);
        }
    }
    return best;
}

double KernelPrices::products_of(const KernelSpec& spec) const {
    const Product p = product_of(spec);
    const DType type = spec.inputs[0].dtype;
    const bool half = type == DType::bf16 || type == DType::f16;
    const auto is_wide = [&](double dim) { return software_.wide > 0 && dim == static_cast<double>(software_.wide); };
    const bool narrow =
        half && software_.eight_bit && rates_.eight_bit_flops > 0 && !is_wide(p.m) && !is_wide(p.n) && !is_wide(p.k);
    double rate = rates_.matrix_flops * rates_.matrix_share * (half ? 1 : type == DType::f64 ? 0.0625 : 0.5);
    double casts = 0;
    if (narrow) {
        rate = rates_.eight_bit_flops * rates_.matrix_share * software_.eight_bit_share;
        // Activations and gradients are read once in 16 bits and written in 8, as they are and transposed; a product
        // of two of these finds them there.
        if (work_of(spec) != Work::weight_product)
            casts = software_.launch_s + software_.passes * stream(4 * static_cast<double>(spec.inputs[0].count()));
    }
    return software_.launch_s + casts + std::max(product(p.batch, p.m, p.n, p.k, rate), stream(bytes_of(spec)));
}

double KernelPrices::attention(const KernelSpec& spec, bool backward) const {
    const Shape &q = spec.inputs[0].shape, &key = spec.inputs[1].shape;
    double batch = size(q, 4), rows = size(q, 3), columns = size(key, 3);
    const double heads = size(q, 2), head = size(q, 1);
    if (software_.packed) {
        rows *= batch, columns *= batch;
        batch = 1;
    }
    if (software_.separate_attention) return separate(batch, heads, rows, columns, head, backward);
    const double window = static_cast<double>(spec.attributes.integer("window"));
    double seen = rows * columns;
    if (spec.attributes.flag("causal"))
        seen = window > 0 && window < columns ? rows * window - window * window / 2 : seen / 2;
    const double scores = batch * heads * seen;
    const double share = software_.attention_share * (software_.own_attention ? 1 : rates_.older_code_share);
    const double rate = rates_.matrix_flops * rates_.matrix_share * share;
    const double products = (backward ? 10 : 4) * scores * head / rate;
    const double busy = products + scores / rates_.exponentials_per_s;
    return (backward ? 2 : 1) * software_.launch_s + std::max(busy, stream(bytes_of(spec)));
}

/// Scores in 16 bits; scaled, masked softmax and dropout are a kernel each (Megatron-LM of 2022).
double KernelPrices::separate(double batch, double heads, double rows, double columns, double head,
                              bool backward) const {
    const double each = batch * heads, scores = each * rows * columns;
    const double rate = rates_.matrix_flops * rates_.matrix_share;
    const double bytes = 2 * (scores + each * head * (rows + columns));
    const double wide = std::max(product(each, rows, columns, head, rate), stream(bytes));  // makes scores
    const double deep = std::max(product(each, rows, head, columns, rate), stream(bytes));  // reads them
    const double rest = backward ? stream(5 * scores) + stream(6 * scores) : stream(4 * scores) + stream(5 * scores);
    return (backward ? 6 : 4) * software_.launch_s + (backward ? wide + 3 * deep : wide + deep) + rest;
}

}  // namespace orrery
