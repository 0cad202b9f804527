#include "kernels/codes.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "kernels/factors.h"
#include "kernels/reference/values.h"

namespace orrery::kernels::reference {

namespace {

Type type_of(Code code) { return code == Code::f8e4m3 ? Type::f8e4m3 : code == Code::f8e5m2 ? Type::f8e5m2 : Type::i8; }

/// The smallest bf16 that is not below x.
double up_to_bf16(double x) {
    bf16 rounded = to_bf16(static_cast<float>(x));
    if (to_float(rounded) < x) ++rounded.bits;
    return to_float(rounded);
}

double scale_of_block(Code code, const double* x, i64 n, bool narrow) {
    double top = 0, sum = 0;
    for (i64 i = 0; i < n; ++i) {
        sum += std::fabs(x[i]);
        if (std::isnan(x[i]) || std::fabs(x[i]) > top) top = std::fabs(x[i]);
        if (std::isnan(top)) break;
    }
    double scale = 0;
    switch (code) {
        case Code::i8: scale = top / 127; break;
        case Code::i4: scale = top / 7; break;
        case Code::i2: scale = top / 2; break;
        case Code::sign: scale = sum / static_cast<double>(n); break;
        case Code::f8e4m3: scale = top / 448; break;
        case Code::f8e5m2: scale = top / 57344; break;
    }
    scale = static_cast<float>(scale);
    if (narrow) scale = up_to_bf16(scale);
    if (code != Code::i2 && code != Code::sign) scale = std::isnan(scale) ? scale : std::max(scale, 0x1p-126);
    return scale;
}

double code_of_number(Code code, double x, double scale) {
    const bool negative = std::signbit(x);
    if (code == Code::sign) return negative ? -1 : 0;
    if (code == Code::i2) return std::fabs(x) > scale ? (negative ? -2 : 1) : (negative ? -1 : 0);
    const float y = static_cast<float>(x) * (1.0f / static_cast<float>(scale));
    if (code == Code::f8e4m3 || code == Code::f8e5m2) return static_cast<double>(y);
    return std::isnan(y) ? 0 : static_cast<double>(std::nearbyint(y));
}

void quantize(Context&, const Blocks& s, Code code, bool narrow, In x, void* q, Out scale) {
    Values v = read(x, s.rows * s.cols), scales(static_cast<size_t>(s.count()));
    for (double& e : v) e = static_cast<float>(e);
    for (i64 b = 0; b < s.count(); ++b) {
        double* const own = v.data() + s.first(b);
        scales[b] = scale_of_block(code, own, s.size(b), narrow);
        for (i64 i = 0; i < s.size(b); ++i) own[i] = code_of_number(code, own[i], scales[b]);
    }
    write({q, type_of(code)}, v);
    write(scale, scales);
}

void dequantize(Context&, const Blocks& s, Code code, const void* q, In scale, Out y) {
    Values v = read({q, type_of(code)}, s.rows * s.cols);
    const Values scales = read(scale, s.count());
    for (i64 b = 0; b < s.count(); ++b) {
        double* const own = v.data() + s.first(b);
        for (i64 i = 0; i < s.size(b); ++i)
            own[i] = (code == Code::sign ? 2 * own[i] + 1 : code == Code::i2 ? own[i] + 0.5 : own[i]) * scales[b];
    }
    write(y, v);
}

void pack(Context&, int bits, const std::int8_t* q, std::uint8_t* y, i64 rows, i64 cols) {
    const i64 each = 8 / bits, bytes = packed_bytes(cols, bits);
    std::fill_n(y, rows * bytes, std::uint8_t{0});
    for (i64 i = 0; i < rows * cols; ++i) {
        const i64 at = i % cols;
        const int code = q[i] & ((1 << bits) - 1);
        y[i / cols * bytes + at / each] |= static_cast<std::uint8_t>(code << at % each * bits);
    }
}

void unpack(Context&, int bits, const std::uint8_t* y, std::int8_t* q, i64 rows, i64 cols) {
    const i64 each = 8 / bits, bytes = packed_bytes(cols, bits);
    for (i64 i = 0; i < rows * cols; ++i) {
        const i64 at = i % cols;
        const int code = y[i / cols * bytes + at / each] >> at % each * bits & ((1 << bits) - 1);
        q[i] = static_cast<std::int8_t>(code >= 1 << (bits - 1) ? code - (1 << bits) : code);
    }
}

void block_top_k(Context&, const Blocks& s, i64 k, In x, Out values, std::int32_t* ids) {
    const Values v = read(x, s.rows * s.cols);
    Values best(static_cast<size_t>(s.count() * k));
    for (i64 b = 0; b < s.count(); ++b) {
        const double* const own = v.data() + s.first(b);
        std::vector<std::int32_t> order(static_cast<size_t>(s.size(b)));
        std::iota(order.begin(), order.end(), 0);
        std::stable_sort(order.begin(), order.end(), [&](std::int32_t one, std::int32_t other) {
            const double a = std::fabs(own[one]), c = std::fabs(own[other]);
            return std::isnan(a) ? !std::isnan(c) : a > c;
        });
        order.resize(static_cast<size_t>(std::min(k, s.size(b))));
        std::sort(order.begin(), order.end());
        std::fill_n(ids + b * k, k, -1);
        for (size_t i = 0; i < order.size(); ++i) {
            ids[b * k + static_cast<i64>(i)] = order[i];
            best[b * k + static_cast<i64>(i)] = own[order[i]];
        }
    }
    write(values, best);
}

/// Modified Gram-Schmidt, twice.
void orthogonalize(Context&, i64 matrices, i64 rows, i64 cols, In x, Out y) {
    Values v = read(x, matrices * rows * cols);
    for (i64 b = 0; b < matrices; ++b) {
        double* const own = v.data() + b * rows * cols;
        const auto dot = [&](i64 j, i64 k) {
            double sum = 0;
            for (i64 i = 0; i < rows; ++i) sum += own[i * cols + j] * own[i * cols + k];
            return sum;
        };
        double finite = 0;
        for (i64 i = 0; i < rows * cols; ++i) finite += own[i] - own[i];
        for (i64 j = 0; j < cols; ++j) {
            const double before = dot(j, j);
            for (i64 k = 0; k < 2 * j; ++k) {
                const double along = dot(j, k % j);
                for (i64 i = 0; i < rows; ++i) own[i * cols + j] -= along * own[i * cols + k % j];
            }
            const double left = dot(j, j), scale = left > least_left * before ? 1 / std::sqrt(left) : 0;
            for (i64 i = 0; i < rows; ++i) own[i * cols + j] = finite != 0 ? finite : own[i * cols + j] * scale;
        }
    }
    write(y, v);
}

}  // namespace

void add_codes(Kernels& k) {
    k.quantize = quantize;
    k.dequantize = dequantize;
    k.pack = pack;
    k.unpack = unpack;
    k.block_top_k = block_top_k;
    k.orthogonalize = orthogonalize;
}

}  // namespace orrery::kernels::reference
