#include "orrery/p2p.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

using namespace orrery;

namespace {

template <class T>
std::vector<T> run(DType dtype, ReduceOp op, const std::vector<std::vector<T>>& ins, bool stream = false) {
    // One element of padding keeps the second output off alignment.
    std::vector<T> first(ins[0].size()), second(ins[0].size() + 1);
    std::vector<const void*> from;
    for (const auto& in : ins) from.push_back(in.data());
    void* to[] = {first.data(), second.data() + 1};
    reduce(dtype, op, from, to, static_cast<int64_t>(first.size()), stream);
    const size_t bytes = first.size() * sizeof(T);
    REQUIRE((bytes == 0 || std::memcmp(first.data(), second.data() + 1, bytes) == 0));
    return first;
}

template <class T>
void check_ints(DType dtype) {
    std::mt19937_64 random(7);
    for (const size_t n : {0, 1, 3, 31, 32, 33, 1003}) {
        for (const size_t inputs : {1, 2, 3}) {
            std::vector<std::vector<T>> ins(inputs, std::vector<T>(n));
            for (auto& in : ins)
                for (T& x : in) x = static_cast<T>(random());
            const auto sum = run(dtype, ReduceOp::sum, ins), max = run(dtype, ReduceOp::max, ins, true),
                       min = run(dtype, ReduceOp::min, ins);
            size_t wrong = 0;
            for (size_t i = 0; i < n; ++i) {
                uint64_t s = 0;
                T a = ins[0][i], b = a;
                for (const auto& in : ins)
                    s += static_cast<uint64_t>(in[i]), a = std::max(a, in[i]), b = std::min(b, in[i]);
                wrong += sum[i] != static_cast<T>(s) || max[i] != a || min[i] != b;
            }
            CHECK(wrong == 0);
        }
    }
}

}  // namespace

TEST_CASE("integers wrap and compare by their sign", "[reduce]") {
    check_ints<int32_t>(DType::i32);
    check_ints<int64_t>(DType::i64);
    check_ints<uint32_t>(DType::u32);
    check_ints<uint16_t>(DType::u16);
    check_ints<uint8_t>(DType::u8);
}

TEST_CASE("floats are added in the order of the inputs", "[reduce]") {
    std::mt19937 random(1);
    std::uniform_real_distribution<float> values(-1, 1);
    std::vector<std::vector<float>> ins(4, std::vector<float>(1001));
    for (auto& in : ins)
        for (float& x : in) x = values(random) * std::pow(10.f, std::floor(values(random) * 6));
    const auto sum = run(DType::f32, ReduceOp::sum, ins);
    size_t wrong = 0;
    for (size_t i = 0; i < sum.size(); ++i) wrong += sum[i] != ((ins[0][i] + ins[1][i]) + ins[2][i]) + ins[3][i];
    CHECK(wrong == 0);
    // In place: an output may be an input.
    auto a = ins[0];
    const void* from[] = {a.data(), ins[1].data()};
    void* to[] = {a.data()};
    reduce(DType::f32, ReduceOp::sum, from, to, 1001);
    CHECK(a[1000] == ins[0][1000] + ins[1][1000]);
}

TEST_CASE("max and min keep NaN from either side", "[reduce]") {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    std::vector<float> a(40, 1), b(40, 2);
    a[0] = b[1] = a[39] = b[38] = nan;
    for (const ReduceOp op : {ReduceOp::max, ReduceOp::min}) {
        const auto r = run<float>(DType::f32, op, {a, b});
        for (const size_t i : {0, 1, 38, 39}) CHECK(std::isnan(r[i]));
        CHECK(r[2] == (op == ReduceOp::max ? 2 : 1));
    }
}

TEST_CASE("16-bit floats: every value survives, vectors round as scalars do", "[reduce]") {
    // A count of 1 takes the scalar path, a long one vectors; both must agree bit for bit.
    for (const DType dtype : {DType::bf16, DType::f16}) {
        std::vector<uint16_t> all(65536), zero(65536, 0x8000);
        for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
        const uint16_t infinity = dtype == DType::bf16 ? 0x7f80 : 0x7c00;
        const auto same = run<uint16_t>(dtype, ReduceOp::sum, {all, zero});
        size_t changed = 0;
        for (size_t i = 0; i < all.size(); ++i) {
            const bool nan = (all[i] & 0x7fff) > infinity;
            changed += nan ? (same[i] & 0x7fff) <= infinity : same[i] != all[i];
        }
        CHECK(changed == 0);
        std::mt19937 random(3);
        std::vector<uint16_t> other(65536);
        for (uint16_t& x : other) x = static_cast<uint16_t>(random());
        const auto fast = run<uint16_t>(dtype, ReduceOp::sum, {all, other});
        size_t wrong = 0;
        for (size_t i = 0; i < all.size(); ++i) {
            uint16_t slow;
            const void* from[] = {&all[i], &other[i]};
            void* to[] = {&slow};
            reduce(dtype, ReduceOp::sum, from, to, 1);
            wrong += slow != fast[i];
        }
        CHECK(wrong == 0);
    }
}

TEST_CASE("bf16 sums are rounded once, to nearest even", "[reduce]") {
    // 256 + 1 + 1 in bf16 steps (2 at 256) would stay 256; in f32 it is 258.
    std::vector<std::vector<uint16_t>> ins = {std::vector<uint16_t>(40, 0x4380), std::vector<uint16_t>(40, 0x3f80),
                                              std::vector<uint16_t>(40, 0x3f80)};
    const auto r = run<uint16_t>(DType::bf16, ReduceOp::sum, ins);
    CHECK(r[0] == 0x4381);
    CHECK(r[39] == 0x4381);
}

TEST_CASE("blocks cover a count evenly", "[reduce]") {
    for (const int64_t count : {0, 1, 7, 12}) {
        int64_t next = 0;
        for (int i = 0; i < 5; ++i) {
            const Part b = part_of(count, 5, i);
            CHECK(b.begin == next);
            next += b.count;
        }
        CHECK(next == count);
    }
}
