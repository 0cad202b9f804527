// The cost of a window: which blocks are visited, and that nothing behind a window is read into a result.
#define ORRERY_ISA counted
#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/cpu/attention_walk.h"
#include "kernels/rules/rules.h"
#include "kernels_compare.h"

using namespace orrery::kernels;
using namespace orrery::kernels::testing;

namespace {

namespace walked = orrery::kernels::cpu::counted;

Attention sizes(i64 time, i64 window) {
    return {.batch = 1,
            .queries = time,
            .keys = time,
            .heads = 2,
            .groups = 1,
            .head_dim = 16,
            .scale = 0.25,
            .causal = true,
            .window = window};
}

struct Visits {
    i64 blocks = 0, scores = 0;
};

/// What the CPU's kernel visits of one head, by the very walk that it takes. Each score that is seen must be in it
/// once.
Visits visits(const Attention& s) {
    Visits found;
    i64 seen = 0;
    walked::walk(
        s, nullptr, [](const walked::Queries&) {},
        [&](const walked::Block& b) {
            ++found.blocks;
            found.scores += b.rows * b.n;
            i64 in_block = 0, by_keys = 0;
            for (i64 r = 0; r < b.rows; ++r) in_block += b.seen(r) - b.from(r);
            for (i64 l = 0; l < b.n; ++l) by_keys += std::max<i64>(0, b.end_row(l) - b.first_row(l));
            CHECK(in_block == by_keys);
            CHECK(in_block > 0);
            seen += in_block;
        },
        [](const walked::Queries&) {});
    i64 expected = 0;
    for (i64 i = 0; i < s.queries; ++i)
        for (i64 j = 0; j < s.keys; ++j)
            expected += !s.causal || (j <= i + s.shift && (s.window == 0 || j > i + s.shift - s.window));
    CHECK(seen == expected);
    return found;
}

}  // namespace

TEST_CASE("the rules hand a window on, leave out one that masks nothing, and refuse one that makes no sense") {
    static Attention given;
    rules::Target target{.kernels = reference::table()};
    target.attention = [](const Attention& s, Type, bool) -> rules::Launch {
        given = s;
        return {};
    };
    const auto window_of = [&](std::int64_t window, bool causal, std::int64_t queries, std::int64_t keys) {
        const rules::Operand q{Type::f32, {2, queries, 4, 8}}, k{Type::f32, {2, keys, 2, 8}};
        const rules::Spec spec{
            "attention", {{"causal", causal}, {"window", window}}, {q, k, k}, {q, {Type::f32, {2, 4, queries}}}};
        given = {};
        rules::resolve(spec, target);
        return given.window;
    };
    CHECK(window_of(0, true, 9, 9) == 0);
    CHECK(window_of(1, true, 9, 9) == 1);
    CHECK(window_of(8, true, 9, 9) == 8);
    CHECK(window_of(9, true, 9, 9) == 0);
    CHECK(window_of(11, true, 2, 12) == 11);  // the queries are the last of the keys
    CHECK(window_of(12, true, 2, 12) == 0);
    CHECK_THROWS_WITH(window_of(-1, true, 9, 9), Catch::Contains("window must be at least 1"));
    CHECK_THROWS_WITH(window_of(3, false, 9, 9), Catch::Contains("needs causal attention"));
}

TEST_CASE("cpu: attention visits blocks in proportion to the window") {
    constexpr i64 q = walked::block_q, k = walked::block_k, step = 2 * walked::width;
    for (const i64 window : {1, 2, 100, 256, 1000}) {
        INFO("window " << window);
        const Visits once = visits(sizes(2048, window)), twice = visits(sizes(4096, window));
        const auto most = [&](i64 time) { return (time + q - 1) / q * q * (window + q - 1 + step); };
        CHECK(once.scores <= most(2048));
        CHECK(twice.scores <= most(4096));
        CHECK(twice.blocks <= (4096 + q - 1) / q * ((window + q - 1 + step + k - 1) / k));
    }
    CHECK(visits(sizes(4096, 128)).blocks * 8 < visits(sizes(4096, 0)).blocks);
    CHECK(visits(sizes(300, 300)).blocks == visits(sizes(300, 0)).blocks);
    Attention shifted = sizes(200, 40);
    for (const i64 shift : {-30, 50, 230}) {
        shifted.shift = shift;
        visits(shifted);
    }
}

TEST_CASE("attention reads no key or query that lies behind the window") {
    // Where numbers are NaN from one place on, only what sees that place is NaN. Room for a tile of 64 on either side.
    Source source;
    const Attention s = sizes(520, 40);
    constexpr i64 room = 128;
    const i64 nq = s.queries * s.heads * s.head_dim, nk = s.keys * s.head_dim, nl = s.heads * s.queries;
    const auto spoilt = [](const Buffer& x, i64 from, i64 end) {
        std::vector<double> v = x.values();
        std::fill(v.begin() + from, v.begin() + end, std::nan(""));
        Buffer y = x;
        y.set(v);
        return y;
    };
    for (const Type type : {Type::f32, Type::bf16}) {
        const Buffer q = source.uniform(type, nq), k = source.uniform(type, nk), v = source.uniform(type, nk);
        const Buffer d_o = source.uniform(type, nq), early_k = spoilt(k, 0, 200 * s.head_dim);
        const Buffer early_v = spoilt(v, 0, 200 * s.head_dim);
        const i64 row = s.heads * s.head_dim;
        const Buffer late_q = spoilt(q, 300 * row, nq), late_d_o = spoilt(d_o, 300 * row, nq);
        Buffer o(type, nq), lse(Type::f32, nl);
        Context one;
        reference::table().attention(one, s, q.in(), k.in(), v.in(), {}, o.out(), lse.out());
        const auto check = [&](const Kernels& t, Context& c) {
            Buffer y(type, nq), l(Type::f32, nl), dq(type, nq), dk(type, nk), dv(type, nk);
            t.attention(c, s, q.in(), early_k.in(), early_v.in(), {}, y.out(), l.out());
            const auto finite = [](const Buffer& x, i64 from, i64 end) {
                const std::vector<double> all = x.values();
                return std::all_of(all.begin() + from, all.begin() + end, [](double e) { return std::isfinite(e); });
            };
            CHECK_FALSE(finite(y, 0, 200 * row));
            CHECK(finite(y, (200 + s.window + room) * row, nq));
            t.attention_grad(c, s, q.in(), early_k.in(), early_v.in(), o.in(), lse.in(), d_o.in(), {}, {}, dq.out(),
                             dk.out(), dv.out());
            CHECK_FALSE(finite(dq, 0, 200 * row));
            CHECK(finite(dq, (200 + s.window + room) * row, nq));
            t.attention_grad(c, s, late_q.in(), k.in(), v.in(), o.in(), lse.in(), late_d_o.in(), {}, {}, dq.out(),
                             dk.out(), dv.out());
            for (const Buffer* d : {&dk, &dv}) {
                CHECK_FALSE(finite(*d, 300 * s.head_dim, nk));
                CHECK(finite(*d, 0, (300 - s.window - room) * s.head_dim));
            }
        };
        emulated::Call call;
        check(emulated::table(), call);
        for (const cpu::Isa isa : {cpu::Isa::portable, cpu::Isa::avx2, cpu::Isa::avx512}) {
            if (!cpu::available(isa)) continue;
            INFO(name_of(isa));
            Context context(1);
            check(cpu::table(isa), context);
        }
    }
}

TEST_CASE("the rules hand blocks on as parts of the batch, and to a rank with one block its shift") {
    static Attention given;
    rules::Target target{.kernels = reference::table()};
    target.attention_by_index = true;
    target.attention = [](const Attention& s, Type, bool) -> rules::Launch {
        given = s;
        return {};
    };
    constexpr i64 time = 16, blocks = 4, block = time / blocks;
    // `rank`: of `blocks` ranks; -1: one device
    const auto read = [&](i64 rank, i64 rolled, i64 window = 0) {
        const i64 own = rank < 0 ? time : block;
        const rules::Operand q{Type::f32, {2, own, 4, 8}}, k{Type::f32, {2, own, 2, 8}};
        rules::Spec spec{"attention", {{"blocks", blocks}, {"causal", true}}, {q, k, k}, {q, {Type::f32, {2, 4, own}}}};
        if (rank >= 0) {
            spec.attributes.emplace_back("global_shape", std::vector<i64>{2, time, 4, 8});
            spec.attributes.emplace_back("offset", std::vector<i64>{0, rank * block, 0, 0});
        }
        if (rolled > 0) spec.attributes.emplace_back("rolled", rolled);
        if (window > 0) spec.attributes.emplace_back("window", window);
        given = {};
        rules::resolve(spec, target);
        return given;
    };
    for (const i64 rank : {0, 1, 2, 3}) {
        INFO(rank);
        CHECK(read(rank, 0).causal);  // the plain triangle
        CHECK(read(rank, 0).shift == 0);
        CHECK(read(rank, 0).blocks == 1);
        CHECK(read(rank, 2 * block).causal == (rank < 2));  // of an earlier block all, of a later one none
        CHECK(read(rank, 2 * block).shift == (rank < 2 ? -block : 0));
        CHECK(read(rank, block, 5).shift == (rank < 1 ? -block : block));
        CHECK(read(rank, block, 5).window == (rank < 1 ? 0 : 5));
    }
    const Attention all = read(-1, 2 * block);
    CHECK(all.batch == 2 * blocks);
    CHECK((all.queries == block && all.keys == block && all.blocks == blocks && all.blind == 2));
    CHECK(all.part(1).shift == -block);
    CHECK(all.part(2).shift == 2 * block);
    CHECK(all.part(blocks).shift == -block);
    CHECK(all.statistic(blocks + 1, 3, 2) == ((4 + 3) * blocks + 1) * block + 2);
    target.attention_by_index = false;
    CHECK_THROWS_WITH(read(-1, 0), Catch::Contains("this device has no attention in blocks"));
}
