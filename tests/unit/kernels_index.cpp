// What kernels of indices promise beyond closeness to the reference: bits, ties, what is no number.
#include <catch2/catch.hpp>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels_compare.h"

using namespace orrery;
using namespace orrery::kernels;
using namespace orrery::kernels::testing;

namespace {

constexpr float no_number = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();

}  // namespace

TEST_CASE("sums by index have the same bits on every table, with any number of threads") {
    struct Case {
        Picks s;
        Type x, y;
    };
    for (const auto& [s, x, y] :
         {Case{{{1, 40, 1}, 30000}, Type::f32, Type::f32}, Case{{{3, 9, 700}, 50}, Type::bf16, Type::bf16},
          Case{{{64, 8, 3}, 100}, Type::f16, Type::f32}, Case{{{1, 12, 2100}, 90, 0, true}, Type::f32, Type::f32},
          Case{{{2, 500, 40}, 600, 100, true, true}, Type::bf16, Type::f32}}) {
        Source source;
        INFO("seed " << source.seed);
        const auto& [outer, size, inner] = s.x;
        const Buffer values = source.uniform(x, outer * s.picks * inner);
        Buffer ids = source.integers(outer * s.picks * (s.rows ? 1 : inner), s.start - 1, s.start + size);
        const Buffer before = source.uniform(y, outer * size * inner);
        // In the order of the picks, each sum in f32.
        std::vector<float> sums(static_cast<size_t>(outer * size * inner));
        const std::vector<double> old = before.values(), from = values.values();
        for (size_t i = 0; i < sums.size() && s.accumulate; ++i) sums[i] = static_cast<float>(old[i]);
        for (i64 e = 0; e < outer * s.picks * inner; ++e) {
            const i64 row = ids.as<std::int32_t>()[s.rows ? e / inner : e] - s.start;
            if (row < 0 || row >= size) continue;
            sums[static_cast<size_t>((e / inner / s.picks * size + row) * inner + e % inner)] +=
                static_cast<float>(from[static_cast<size_t>(e)]);
        }
        Buffer expected = before;
        expected.set(std::vector<double>(sums.begin(), sums.end()));
        each_table([&](const Kernels& table, Context& context) {
            Buffer got = before;
            table.scatter_add(context, s, values.in(), ids.as<std::int32_t>(), got.out());
            CHECK(got.same_bits(expected));
        });
    }
}

TEST_CASE("the largest elements: NaN above numbers, equal ones and both zeros by index") {
    const std::vector<float> x{-0.0f, 2, no_number, 0, -infinity, infinity, 2, -no_number, -3, 0};
    const std::vector<std::int32_t> order{2, 7, 5, 1, 6, 0, 3, 9, 8, 4};
    Context one;
    const auto check = [&](const Kernels& table, Context& context) {
        for (size_t k = 1; k <= x.size(); ++k) {
            std::vector<float> values(k);
            std::vector<std::int32_t> ids(k);
            table.top_k(context, {1, static_cast<i64>(x.size()), 1}, static_cast<i64>(k), x.data(), values.data(),
                        ids.data());
            CHECK(ids == std::vector<std::int32_t>(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(k)));
            for (size_t j = 0; j < k; ++j) {
                const float from = x[static_cast<size_t>(order[j])];
                CHECK((std::isnan(from) ? std::isnan(values[j]) : std::memcmp(&values[j], &from, 4) == 0));
            }
        }
    };
    check(reference::table(), one);
    each_table(check);
}

TEST_CASE("the largest elements of a long row: a NaN anywhere is the first") {
    const i64 n = 300;
    for (const i64 at : {2, 63, 64, 65, 70, 79, 80, 100, 127, 128, 290, 299}) {
        INFO("a NaN at " << at);
        std::vector<float> x(static_cast<size_t>(n)), values(2);
        for (i64 i = 0; i < n; ++i) x[static_cast<size_t>(i)] = static_cast<float>(-i);
        x[static_cast<size_t>(at)] = no_number;
        std::vector<std::int32_t> ids(2);
        each_table([&](const Kernels& table, Context& context) {
            table.top_k(context, {1, n, 1}, 2, x.data(), values.data(), ids.data());
            CHECK(ids == std::vector<std::int32_t>{static_cast<std::int32_t>(at), 0});
            CHECK(std::isnan(values[0]));
        });
    }
}

TEST_CASE("the largest elements of rows that ascend, descend and are all equal, up to all of them", "[slow]") {
    for (const i64 n : {31, 257, 5000}) {
        for (const int way : {1, -1, 0}) {
            std::vector<float> x(static_cast<size_t>(n)), values(x.size());
            for (i64 i = 0; i < n; ++i) x[static_cast<size_t>(i)] = static_cast<float>(way * i);
            std::vector<std::int32_t> ids(x.size());
            for (const i64 k : {i64{3}, n}) {
                each_table([&](const Kernels& table, Context& context) {
                    table.top_k(context, {1, n, 1}, k, x.data(), values.data(), ids.data());
                    bool good = true;
                    for (i64 j = 0; j < k; ++j) {
                        const i64 index = way > 0 ? n - 1 - j : j;
                        good = good && ids[static_cast<size_t>(j)] == index &&
                               values[static_cast<size_t>(j)] == x[static_cast<size_t>(index)];
                    }
                    INFO("n " << n << ", k " << k << ", way " << way);
                    CHECK(good);
                });
            }
        }
    }
}

TEST_CASE("running sums have the same bits with any number of threads") {
    Source source;
    INFO("seed " << source.seed);
    for (const Along& s : {Along{3, 5000, 1}, Along{40, 70, 300}, Along{1, 9, 5}}) {
        const Buffer x = source.uniform(Type::f32, s.outer * s.size * s.inner);
        for (const cpu::Isa isa : {cpu::Isa::portable, cpu::Isa::avx2, cpu::Isa::avx512}) {
            if (!cpu::available(isa)) continue;
            Context one(1);
            Buffer expected = x;
            cpu::table(isa).cumsum(one, s, false, true, x.in(), expected.out());
            for (const int threads : {2, 5, 16}) {
                Context context(threads);
                Buffer got = x;  // in place
                cpu::table(isa).cumsum(context, s, false, true, got.in(), got.out());
                CHECK(got.same_bits(expected));
            }
        }
        emulated::Call call;
        Buffer apart = x, within = x;
        emulated::table().cumsum(call, s, true, false, x.in(), apart.out());
        emulated::table().cumsum(call, s, true, false, within.in(), within.out());
        CHECK(within.same_bits(apart));
    }
}
