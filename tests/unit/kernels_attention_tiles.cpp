// Attention by index against the reference, and which blocks it visits.
#define ORRERY_ISA by_index
#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include "kernels/cpu/attention_walk.h"
#include "kernels_compare.h"

using namespace orrery::kernels;
using namespace orrery::kernels::testing;

namespace {

namespace walked = orrery::kernels::cpu::by_index;

using Ids = std::vector<std::int32_t>;

/// Documents and positions of rows of `time` places.
struct Rows {
    Ids documents, positions;
};

class Documents {
public:
    explicit Documents(unsigned seed) : engine_(seed) {}
    int integer(int low, int high) { return std::uniform_int_distribution<int>(low, high)(engine_); }
    bool coin() { return integer(0, 1) == 0; }

    /// Documents one after the other, of `mean` places in the mean, then padding.
    Rows packed(i64 batch, i64 time, int mean) {
        Rows rows;
        for (i64 b = 0; b < batch; ++b) {
            const i64 padding = time > 8 ? integer(0, static_cast<int>(time) / 8) : 0;
            for (i64 i = 0, document = 0; i < time; ++document) {
                const bool padded = i >= time - padding;
                const i64 left = (padded ? time : time - padding) - i;
                const i64 n = padded ? left : std::min<i64>(left, integer(1, 2 * mean - 1));
                for (i64 p = 0; p < n; ++p, ++i) add(rows, padded ? -1 : document, padded ? 0 : p);
            }
        }
        return rows;
    }
    /// Runs of up to `most` places of a few documents, or of padding, in any order.
    Rows scattered(i64 batch, i64 time, int most) {
        Rows rows;
        const auto all = static_cast<size_t>(batch * time);
        while (rows.documents.size() < all) {
            const i64 document = integer(-1, 4), from = integer(0, 100);
            const i64 n = std::min<i64>(static_cast<i64>(all - rows.documents.size()), integer(1, most));
            for (i64 p = 0; p < n; ++p) add(rows, document, from + p);
        }
        return rows;
    }

private:
    static void add(Rows& rows, i64 document, i64 position) {
        rows.documents.push_back(static_cast<std::int32_t>(document));
        rows.positions.push_back(static_cast<std::int32_t>(position));
    }
    std::mt19937 engine_;
};

AttentionIndex index_of(const Rows& queries, const Rows& keys) {
    return {queries.documents.data(), queries.positions.data(), keys.documents.data(), keys.positions.data()};
}

bool sees(const Attention& s, const AttentionIndex& at, i64 i, i64 j) {
    const i64 ago = i64{at.positions[i]} - at.key_positions[j];
    if (at.documents[i] < 0 || at.documents[i] != at.key_documents[j]) return false;
    return !s.causal || (ago >= 0 && (s.window == 0 || ago < s.window));
}

struct Visits {
    i64 blocks = 0, scores = 0, seen = 0;
};

/// What the CPU's kernel visits of one head, by the very walk that it takes. Each score that is seen must be in it
/// once, and in each tile of keys one at least.
Visits visits(const Attention& s, const AttentionIndex& at) {
    std::vector<Bounds> tiles(static_cast<size_t>(s.keys / walked::tile_k + 1));
    std::vector<walked::Span> spans(static_cast<size_t>(s.queries));
    const walked::Indexed indexed{s, at, tiles.data(), spans.data()};
    for (i64 t = 0; t * walked::tile_k < s.keys; ++t) indexed.bound(t);
    for (i64 i = 0; i < s.queries; i += walked::block_q) indexed.find(i, std::min(walked::block_q, s.queries - i));
    Visits found;
    walked::walk(
        s, &indexed, [](const walked::Queries&) {},
        [&](const walked::Block& b) {
            ++found.blocks;
            found.scores += b.rows * b.n;
            std::set<i64> unseen;
            for (i64 l = 0; l < b.n; l += walked::tile_k) unseen.insert(l / walked::tile_k);
            for (i64 r = 0; r < b.rows; ++r) {
                std::vector<float> row(static_cast<size_t>(b.n));
                if (b.gaps(r)) b.sights->mask(r, row.data());
                const i64 six = r / walked::micro_rows * walked::micro_rows;
                const walked::Part keys = b.keys_of(six, std::min(six + walked::micro_rows, b.rows) - 1);
                for (i64 l = 0; l < b.n; ++l) {
                    const bool in = l >= b.from(r) && l < b.seen(r) && row[static_cast<size_t>(l)] == 0;
                    if (in != sees(s, at, b.i + r, b.j + l)) FAIL("query " << b.i + r << ", key " << b.j + l);
                    if (!in) continue;
                    ++found.seen;
                    unseen.erase(l / walked::tile_k);
                    const walked::Part rows = b.rows_of(l / walked::micro_rows * walked::micro_rows, 0);
                    if (l < keys.begin || l >= keys.end || r < rows.begin || r >= rows.end)
                        FAIL("row " << r << " and key " << l << " of a block are in no product");
                }
            }
            CHECK(unseen.empty());
        },
        [](const walked::Queries&) {});
    i64 expected = 0;
    for (i64 i = 0; i < s.queries; ++i)
        for (i64 j = 0; j < s.keys; ++j) expected += sees(s, at, i, j);
    CHECK(found.seen == expected);
    return found;
}

Attention sizes(i64 time, i64 window = 0) {
    Attention s;
    s.batch = 1, s.queries = s.keys = time, s.heads = 2, s.groups = 1, s.head_dim = 16;
    s.scale = 0.25;
    s.causal = true;
    s.window = window;
    s.indexed = true;
    return s;
}

/// The operands of one case and what a table makes of them: o, lse, dq, dk, dv.
struct Case {
    Attention s;
    Rows queries, keys;
    Buffer q, k, v, d_o, d_lse;
    bool of_lse;

    Case(Source& source, const Attention& sizes, Type type, Rows of_queries, Rows of_keys, bool of_lse)
        : s(sizes),
          queries(std::move(of_queries)),
          keys(std::move(of_keys)),
          q(source.uniform(type, s.batch * s.queries * s.heads * s.head_dim, -2, 2)),
          k(source.uniform(type, s.batch * s.keys * s.groups * s.head_dim, -2, 2)),
          v(source.uniform(type, s.batch * s.keys * s.groups * s.values())),
          d_o(source.uniform(type, s.batch * s.queries * s.heads * s.values())),
          d_lse(source.uniform(Type::f32, s.batch * s.heads * s.queries)),
          of_lse(of_lse) {}

    AttentionIndex at() const { return s.indexed ? index_of(queries, keys) : AttentionIndex{}; }
    void check(const Source& source) const {
        INFO("queries " << s.queries << " keys " << s.keys << " head " << s.head_dim << " value " << s.values()
                        << " causal " << s.causal << " window " << s.window << " indexed " << s.indexed);
        const Type type = q.type();
        compare_with_reference(source, {Buffer(type, d_o.count()), Buffer(Type::f32, d_lse.count())},
                               [&](const Kernels& t, Context& c, std::vector<Buffer>& y) {
                                   t.attention(c, s, q.in(), k.in(), v.in(), at(), y[0].out(), y[1].out());
                               });
        Buffer o(type, d_o.count()), lse(Type::f32, d_lse.count());
        Context one;
        reference::table().attention(one, s, q.in(), k.in(), v.in(), at(), o.out(), lse.out());
        compare_with_reference(source, {Buffer(type, q.count()), Buffer(type, k.count()), Buffer(type, v.count())},
                               [&](const Kernels& t, Context& c, std::vector<Buffer>& y) {
                                   t.attention_grad(c, s, q.in(), k.in(), v.in(), o.in(), lse.in(), d_o.in(), at(),
                                                    of_lse ? d_lse.in() : In{}, y[0].out(), y[1].out(), y[2].out());
                               });
    }
};

}  // namespace

TEST_CASE("attention by index against the reference, at random") {
    Source source;
    Documents draw(source.seed);
    for (int round = 0; round < 24; ++round) {
        Attention s;
        s.batch = draw.integer(1, 2), s.queries = draw.integer(2, 170), s.keys = draw.integer(2, 330);
        s.groups = draw.integer(1, 2), s.heads = s.groups * draw.integer(1, 3), s.head_dim = draw.integer(2, 24);
        s.value_dim = draw.coin() ? draw.integer(1, 40) : 0;
        s.scale = 0.3;
        s.causal = draw.integer(0, 3) > 0;
        s.window = s.causal && draw.coin() ? draw.integer(2, 90) : 0;
        s.indexed = round % 6 > 0;
        s.shift = s.indexed ? 0 : draw.integer(-20, 160);
        const bool packed = draw.coin();
        if (packed) s.queries = s.keys;
        const int most = draw.coin() ? 3 : 80;
        const Rows keys = packed ? draw.packed(s.batch, s.keys, most) : draw.scattered(s.batch, s.keys, most);
        const Rows queries = packed ? keys : draw.scattered(s.batch, s.queries, most);
        // Where each query sees one key alone, the gradient of q is nothing but that of lse.
        const bool of_lse = !packed || s.keys < 60 || draw.coin();
        INFO("round " << round);
        Case(source, s, round % 3 == 2 ? Type::bf16 : Type::f32, queries, keys, of_lse).check(source);
    }
}

TEST_CASE("cpu: attention by index visits only tiles of which a query sees a key") {
    Source source;
    Documents draw(source.seed);
    INFO("seed " << source.seed);
    for (int round = 0; round < 12; ++round) {
        Attention s = sizes(draw.integer(1, 700), draw.coin() ? draw.integer(1, 200) : 0);
        s.keys = draw.integer(1, 900);
        const int most = round % 3 == 0 ? 2 : 90;
        const Rows queries = draw.scattered(1, s.queries, most), keys = draw.scattered(1, s.keys, most);
        visits(s, index_of(queries, keys));
    }
    // In proportion to the tokens: a block of queries reaches back to where the first one's document begins.
    constexpr i64 q = walked::block_q, most = 283;
    const Rows rows = draw.packed(1, 4096, (most + 1) / 2);
    for (const i64 time : {2048, 4096})
        CHECK(visits(sizes(time), index_of(rows, rows)).scores <= (time + q - 1) / q * q * (most + q + walked::tile_k));
}

TEST_CASE("cpu: attention over one document in order has the bits of the causal triangle") {
    Source source;
    Attention s = sizes(530);
    Rows rows;
    for (std::int32_t i = 0; i < 530; ++i) {
        rows.documents.push_back(3);
        rows.positions.push_back(i);
    }
    const i64 nq = 530 * 32, nk = 530 * 16, nl = 2 * 530;
    const Buffer q = source.uniform(Type::f32, nq), k = source.uniform(Type::f32, nk);
    const Buffer v = source.uniform(Type::f32, nk), d_o = source.uniform(Type::f32, nq);
    for (const cpu::Isa isa : {cpu::Isa::portable, cpu::Isa::avx2, cpu::Isa::avx512}) {
        if (!cpu::available(isa)) continue;
        std::vector<Buffer> results[2];
        for (const bool indexed : {false, true}) {
            s.indexed = indexed;
            const AttentionIndex at = indexed ? index_of(rows, rows) : AttentionIndex{};
            std::vector<Buffer>& y = results[indexed];
            y = {Buffer(Type::f32, nq), Buffer(Type::f32, nl), Buffer(Type::f32, nq), Buffer(Type::f32, nk),
                 Buffer(Type::f32, nk)};
            Context c(indexed ? 3 : 1);
            cpu::table(isa).attention(c, s, q.in(), k.in(), v.in(), at, y[0].out(), y[1].out());
            cpu::table(isa).attention_grad(c, s, q.in(), k.in(), v.in(), y[0].in(), y[1].in(), d_o.in(), at, {},
                                           y[2].out(), y[3].out(), y[4].out());
        }
        INFO(name_of(isa));
        for (size_t i = 0; i < 5; ++i) CHECK(results[0][i].same_bits(results[1][i]));
    }
}
