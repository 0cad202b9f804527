// Codes of blocks: equal bits on every table, the bounds of kernels/codes.h, and what is no number.
#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "kernels/codes.h"
#include "kernels_compare.h"
#include "orrery/half.h"

using namespace orrery;
using namespace orrery::kernels;
using namespace orrery::kernels::testing;

namespace {

constexpr float no_number = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
constexpr double denormal = 0x1p-126;

struct Numbers {
    std::string name;
    std::vector<float> x;
    bool finite = true;
};

std::vector<Numbers> all_numbers(Source& source, i64 n) {
    const std::vector<double> drawn = source.uniform(Type::f32, n).values();
    const auto made = [&](auto f) {
        std::vector<float> x;
        for (const double e : drawn) x.push_back(static_cast<float>(f(e)));
        return x;
    };
    std::vector<Numbers> all{{"random", made([](double e) { return e; })},
                             {"zero", made([](double) { return 0.0; })},
                             {"constant", made([](double) { return -2.5; })},
                             {"1e30", made([](double e) { return 1e30 * e; })},
                             {"denormal", made([](double e) { return 1e-39 * e; })},
                             {"near the smallest scale", made([](double e) { return 127 * denormal * e; })},
                             {"halves", made([](double e) { return std::round(254 * e) / 2; })}};
    Numbers infinite = all[0], none = all[0], negative = all[0], payload = all[0];
    infinite.x[static_cast<size_t>(n / 2)] = -infinity;
    none.x[static_cast<size_t>(n / 3)] = no_number;
    all.push_back({"with an infinity", infinite.x, false});
    negative.x[static_cast<size_t>(n / 2)] = std::bit_cast<float>(0xffc00000u);
    payload.x[static_cast<size_t>(n - 1)] = std::bit_cast<float>(0xffd54321u);
    all.push_back({"with a NaN", none.x, false});
    all.push_back({"with a negative NaN", negative.x, false});
    all.push_back({"with a NaN that has a payload", payload.x, false});
    return all;
}

/// Codes, those that are a NaN without its sign: a product of two NaNs may have that of either.
Buffer without_nan_signs(Code code, Buffer q) {
    auto* const bytes = q.as<std::uint8_t>();
    for (i64 i = 0; i < q.count() && (code == Code::f8e4m3 || code == Code::f8e5m2); ++i)
        if (bytes[i] == 0xff) bytes[i] = 0x7f;
    return q;
}

/// How far an element may be from what its code stands for; of a sign: how far all of a block may be, squared.
double bound(Code code, double x, double scale) {
    switch (code) {
        case Code::i8:
        case Code::i4: return 0.501 * scale;
        case Code::i2: return scale / 2 * 1.00001;
        case Code::f8e4m3: return 0x1p-4 * x * 1.00001 + 0x1p-10 * scale;
        case Code::f8e5m2: return 0x1p-3 * x * 1.00001 + 0x1p-17 * scale;
        case Code::sign: break;
    }
    return infinity;
}

/// The largest scale that a block may have, from its largest magnitude.
double largest_scale(Code code, double top) {
    const double levels = code == Code::i8       ? 127
                          : code == Code::i4     ? 7
                          : code == Code::i2     ? 2
                          : code == Code::f8e4m3 ? 448
                                                 : 57344;
    return code == Code::sign ? top * 1.00001 : std::max(top / levels * (1 + 0x1p-7), denormal);
}

void check_bounds(const Blocks& s, Code code, const Numbers& numbers, const Buffer& scales, const Buffer& decoded) {
    const std::vector<double> scale = scales.values(), d = decoded.values();
    for (i64 b = 0; b < s.count(); ++b) {
        double error = 0, norm = 0, top = 0;
        bool finite = true, some = false;
        for (i64 i = s.first(b); i < s.first(b) + s.size(b); ++i) {
            const double x = static_cast<double>(numbers.x[static_cast<size_t>(i)]), y = d[static_cast<size_t>(i)];
            finite = finite && std::isfinite(x);
            some = some || !std::isfinite(y);
            top = std::max(top, std::abs(x));
            norm += x * x;
            error += (x - y) * (x - y);
            if (std::isfinite(scale[static_cast<size_t>(b)]) &&
                std::abs(x - y) > bound(code, std::abs(x), scale[static_cast<size_t>(b)]) + denormal)
                FAIL("element " << i << ", " << x << ", is decoded to " << y);
        }
        CHECK(finite != some);
        if (!finite) continue;
        CHECK(scale[static_cast<size_t>(b)] <= largest_scale(code, top) + denormal);
        const double left_out = static_cast<double>(s.size(b)) * denormal * denormal;
        CHECK(std::sqrt(error) <= std::sqrt(norm) * 1.000001 + std::sqrt(left_out));
    }
}

}  // namespace

TEST_CASE("codes have the reference's bits on every table, and what they stand for is within their bounds") {
    Source source;
    INFO("seed " << source.seed);
    for (const Blocks& s : {Blocks{1, 600, 256}, Blocks{3, 75, 64}, Blocks{2, 5, 7}})
        for (const Numbers& numbers : all_numbers(source, s.rows * s.cols))
            for (const Code code : {Code::i8, Code::i4, Code::i2, Code::sign, Code::f8e4m3, Code::f8e5m2})
                for (const bool narrow : {true, false}) {
                    INFO(numbers.name << ", code " << static_cast<int>(code) << ", block " << s.block << ", narrow "
                                      << narrow);
                    const i64 n = s.rows * s.cols;
                    const Type type = narrow ? Type::bf16 : Type::f32;
                    Buffer q(Type::i8, n), scale(type, s.count()), y(Type::f32, n);
                    Context one;
                    reference::table().quantize(one, s, code, narrow, numbers.x.data(), q.out().data, scale.out());
                    reference::table().dequantize(one, s, code, q.in().data, scale.in(), y.out());
                    check_bounds(s, code, numbers, scale, y);
                    each_table([&](const Kernels& k, Context& context) {
                        Buffer codes(Type::i8, n), scales(type, s.count()), decoded(Type::f32, n);
                        k.quantize(context, s, code, narrow, numbers.x.data(), codes.out().data, scales.out());
                        CHECK(without_nan_signs(code, codes).same_bits(without_nan_signs(code, q)));
                        // Sums of magnitudes are rounded in another order; the largest is exact.
                        if (code != Code::sign) CHECK(scales.same_bits(scale));
                        k.dequantize(context, s, code, codes.in().data, scales.in(), decoded.out());
                        check_bounds(s, code, numbers, scales, decoded);
                        k.dequantize(context, s, code, q.in().data, scale.in(), decoded.out());
                        check_close(decoded, y);
                    });
                }
}

TEST_CASE("the scale of a block with NaNs has the largest payload of them and no sign on every table") {
    Source source;
    INFO("seed " << source.seed);
    const Blocks s{2, 600, 256};
    const std::vector<double> drawn = source.uniform(Type::f32, s.rows * s.cols).values();
    for (const auto& [small, large] : {std::pair<i64, i64>{3, 4}, {4, 3}, {5, 69}, {69, 5}, {0, 87}, {87, 0}}) {
        std::vector<float> x(drawn.begin(), drawn.end());
        for (i64 block = 0; block < s.count(); ++block) {
            x[static_cast<size_t>(s.first(block) + small)] = std::bit_cast<float>(0x7fd54320u);
            x[static_cast<size_t>(s.first(block) + large)] = std::bit_cast<float>(0xffd64321u);
        }
        for (const Code code : {Code::i8, Code::i4, Code::i2, Code::f8e4m3, Code::f8e5m2})
            for (const bool narrow : {true, false}) {
                INFO("code " << static_cast<int>(code) << ", narrow " << narrow << ", NaNs at " << small << ", "
                             << large);
                const Type type = narrow ? Type::bf16 : Type::f32;
                Buffer expected(type, s.count());
                for (i64 block = 0; block < s.count(); ++block)
                    if (narrow)
                        expected.as<std::uint16_t>()[block] = 0x7fd6;
                    else
                        expected.as<std::uint32_t>()[block] = 0x7fd64321u;
                each_table([&](const Kernels& k, Context& context) {
                    Buffer codes(Type::i8, s.rows * s.cols), scales(type, s.count());
                    k.quantize(context, s, code, narrow, x.data(), codes.out().data, scales.out());
                    CHECK(scales.same_bits(expected));
                });
            }
    }
}

TEST_CASE("floats of 8 bits are those of orrery/half.h") {
    for (int code = 0; code < 256; ++code) {
        const auto bits = static_cast<std::uint8_t>(code);
        INFO("code " << code);
        const auto same = [](float a, float b) { return a == b || (a != a && b != b); };
        CHECK(same(from_f8<3>(bits), widen_f8e4m3(bits)));
        CHECK(same(from_f8<2>(bits), widen_f8e5m2(bits)));
    }
    // Every f32 of 12 bits, and those next to it: among them all numbers of 8 bits and the middle of each two.
    for (std::uint32_t high = 0; high < 1u << 12; ++high)
        for (const std::uint32_t bits : {high << 20, (high << 20) + 1, (high << 20) - 1}) {
            const auto x = std::bit_cast<float>(bits);
            INFO("bits " << bits);
            CHECK(to_f8<3>(x) == narrow_f8e4m3(x));
            CHECK(to_f8<2>(x) == narrow_f8e5m2(x));
        }
}

TEST_CASE("packed codes come back on every table") {
    Source source;
    INFO("seed " << source.seed);
    for (const int bits : {1, 2, 4})
        for (const auto& [rows, cols] : {std::pair<i64, i64>{1, 70000}, {5, 33}, {9, 1}}) {
            INFO(bits << " bits, rows of " << cols);
            const i64 half = i64{1} << (bits - 1), bytes = (cols * bits + 7) / 8;
            Buffer q(Type::i8, rows * cols), packed(Type::u8, rows * bytes);
            q.set(source.integers(rows * cols, -half, half - 1).values());
            Context one;
            reference::table().pack(one, bits, q.as<std::int8_t>(), packed.as<std::uint8_t>(), rows, cols);
            each_table([&](const Kernels& k, Context& context) {
                Buffer made(Type::u8, rows * bytes), back(Type::i8, rows * cols);
                k.pack(context, bits, q.as<std::int8_t>(), made.as<std::uint8_t>(), rows, cols);
                CHECK(made.same_bits(packed));
                k.unpack(context, bits, made.as<std::uint8_t>(), back.as<std::int8_t>(), rows, cols);
                CHECK(back.same_bits(q));
            });
        }
}

TEST_CASE("the largest of a block are the same on every table: ties by index, what is no number first") {
    Source source;
    INFO("seed " << source.seed);
    for (const Blocks& s : {Blocks{1, 2500, 2048}, Blocks{3, 40, 16}, Blocks{1, 5, 64}})
        for (const Numbers& numbers : all_numbers(source, s.rows * s.cols))
            for (const i64 k : {i64{1}, i64{9}, s.block / 10 + 1, s.block}) {
                INFO(numbers.name << ", " << k << " of " << s.block);
                if (k > s.block) continue;
                Buffer values(Type::f32, s.count() * k), ids(Type::i32, s.count() * k);
                Context one;
                reference::table().block_top_k(one, s, k, numbers.x.data(), values.out(), ids.as<std::int32_t>());
                bool finite = true;
                for (const double v : values.values()) finite = finite && std::isfinite(v);
                CHECK(finite == numbers.finite);
                each_table([&](const Kernels& table, Context& context) {
                    Buffer chosen(Type::f32, s.count() * k), places(Type::i32, s.count() * k);
                    table.block_top_k(context, s, k, numbers.x.data(), chosen.out(), places.as<std::int32_t>());
                    CHECK(places.same_bits(ids));
                    CHECK(chosen.same_bits(values));
                });
            }
}

namespace {

/// Largest distance of y^T y from the unit matrix, where columns of zeros have 0 for their 1; columns of zeros.
std::pair<double, i64> off_orthonormal(const std::vector<double>& y, i64 rows, i64 cols) {
    double farthest = 0;
    i64 zeros = 0;
    for (i64 i = 0; i < cols; ++i)
        for (i64 j = 0; j <= i; ++j) {
            double dot = 0;
            for (i64 r = 0; r < rows; ++r) dot += y[r * cols + i] * y[r * cols + j];
            const bool zero = i == j && dot == 0;
            zeros += zero ? 1 : 0;
            farthest = std::max(farthest, std::abs(dot - (i == j && !zero ? 1 : 0)));
        }
    return {farthest, zeros};
}

/// The part of x, scaled to a largest magnitude of 1, that no column of y spans, relative to its norm.
double outside(std::vector<double> x, const std::vector<double>& y, i64 rows, i64 cols) {
    double top = 0, left = 0, all = 0;
    for (const double e : x) top = std::max(top, std::abs(e));
    for (double& e : x) e /= top > 0 ? top : 1;
    for (i64 i = 0; i < cols; ++i) {
        std::vector<double> dots(static_cast<size_t>(cols));
        for (i64 j = 0; j < cols; ++j)
            for (i64 r = 0; r < rows; ++r) dots[j] += x[r * cols + i] * y[r * cols + j];
        for (i64 r = 0; r < rows; ++r) {
            double e = x[r * cols + i];
            all += e * e;
            for (i64 j = 0; j < cols; ++j) e -= dots[j] * y[r * cols + j];
            left += e * e;
        }
    }
    return std::sqrt(left / (all > 0 ? all : 1));
}

}  // namespace

TEST_CASE("columns become orthonormal on every table and span what they did; no zero or dependent one is a NaN") {
    Source source;
    INFO("seed " << source.seed);
    const std::vector<std::tuple<i64, i64, i64>> shapes{{1, 2100, 16}, {3, 9, 4}, {2, 70, 33}, {1, 5, 1}, {2, 3, 7}};
    for (const auto& [matrices, rows, cols] : shapes) {
        const i64 size = rows * cols;
        std::vector<Numbers> all = all_numbers(source, matrices * size);
        for (Numbers& numbers : all)
            if (numbers.name == "1e30")
                for (float& e : numbers.x) e *= 1e8f;
        Numbers repeated = all[0], ranked = all[0], close = all[0];
        for (i64 i = 0; i < std::ssize(repeated.x); ++i) {
            const i64 row = i / cols * cols, column = i % cols;
            repeated.x[i] = repeated.x[row] * (column % 2 == 0 ? 3.0f : 0.0f);  // rank 1, and columns of zeros
            ranked.x[i] = column < 2 ? ranked.x[i] : ranked.x[row] - ranked.x[row + 1];
            close.x[i] = repeated.x[row] + 1e-4f * close.x[i];
        }
        repeated.name = "repeated", ranked.name = "of rank 2", close.name = "close";
        all.insert(all.end(), {repeated, ranked, close});
        for (const Numbers& numbers : all) {
            INFO(numbers.name << ", " << matrices << " of " << rows << " x " << cols);
            const In x(numbers.x.data());
            Buffer expected(Type::f32, matrices * size);
            Context one;
            reference::table().orthogonalize(one, matrices, rows, cols, x, expected.out());
            each_table([&](const Kernels& table, Context& context) {
                Buffer y(Type::f32, matrices * size), again(Type::f32, matrices * size);
                table.orthogonalize(context, matrices, rows, cols, x, y.out());
                again.set({numbers.x.begin(), numbers.x.end()});
                table.orthogonalize(context, matrices, rows, cols, again.in(), again.out());
                CHECK(again.same_bits(y));  // in place
                const std::vector<double> values = y.values(), wanted = expected.values();
                bool finite = true;
                for (i64 b = 0; b < matrices; ++b) {
                    const auto part = [&](const auto& of) {
                        return std::vector<double>(of.begin() + b * size, of.begin() + (b + 1) * size);
                    };
                    const std::vector<double> own = part(values), given = part(numbers.x), theirs = part(wanted);
                    const auto good = [](const std::vector<double>& of) {
                        return std::ranges::all_of(of, [](double e) { return std::isfinite(e); });
                    };
                    CHECK(good(own) == good(given));
                    finite = finite && good(own);
                    if (!good(own)) continue;
                    const auto [off, zeros] = off_orthonormal(own, rows, cols);
                    CHECK(off < 1e-6);
                    CHECK(zeros == off_orthonormal(theirs, rows, cols).second);
                    if (numbers.name != "denormal") CHECK(outside(given, own, rows, cols) < 1e-5);
                }
                CHECK(finite == numbers.finite);
                if (numbers.name == "random" && rows > 2 * cols) check_close(y, expected);
            });
        }
    }
}
