// The reference kernels of attention by index against softmax over a masked matrix of scores, in f64.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "kernels/kernels.h"

using namespace orrery::kernels;

namespace {

using i64 = std::int64_t;
using Values = std::vector<double>;
using Ids = std::vector<std::int32_t>;

const Kernels& ref = reference::table();

class Numbers {
public:
    explicit Numbers(unsigned seed) : engine_(seed) {}
    i64 below(i64 n) { return static_cast<i64>(engine_() % static_cast<unsigned>(n)); }
    Values values(i64 n) {
        Values v(static_cast<size_t>(n));
        for (double& e : v) e = static_cast<double>(engine_() % 4001) / 1000 - 2;
        return v;
    }

private:
    std::mt19937 engine_;
};

/// One attention: sizes, operands, gradients of the outputs.
struct Case {
    Attention s;
    Ids documents, positions, key_documents, key_positions;
    Values q, k, v, d_o, d_lse;

    AttentionIndex index() const {
        return {documents.data(), positions.data(), key_documents.data(), key_positions.data()};
    }
};

/// What attention and its gradient write.
struct Result {
    Values o, lse, dq, dk, dv;
};

Case sized(const Attention& s, Numbers& numbers) {
    Case c{s};
    const i64 queries = s.batch * s.queries, keys = s.batch * s.keys;
    c.q = numbers.values(queries * s.heads * s.head_dim);
    c.k = numbers.values(keys * s.groups * s.head_dim);
    c.v = numbers.values(keys * s.groups * s.values());
    c.d_o = numbers.values(queries * s.heads * s.values());
    c.d_lse = numbers.values(queries * s.heads);
    return c;
}

/// Rows of documents of 1 to `longest` tokens, some of them padding; queries are the row or a part of its tokens.
Case drawn(Numbers& numbers) {
    Attention s{.batch = 1 + numbers.below(2), .keys = 1 + numbers.below(14), .groups = 1 + numbers.below(2)};
    s.heads = s.groups * (1 + numbers.below(3));
    s.head_dim = 1 + numbers.below(5);
    if (numbers.below(2) == 0) s.value_dim = 1 + numbers.below(6);
    s.scale = 0.3 + 0.1 * static_cast<double>(numbers.below(5));
    s.causal = numbers.below(4) > 0;
    if (s.causal && numbers.below(2) == 0) s.window = 1 + numbers.below(6);
    s.indexed = true;
    const bool same = numbers.below(2) == 0;
    s.queries = same ? s.keys : 1 + numbers.below(9);
    Case c = sized(s, numbers);
    const i64 longest = 1 + numbers.below(7);
    for (i64 b = 0; b < s.batch; ++b) {
        std::int32_t document = static_cast<std::int32_t>(numbers.below(3));
        for (i64 j = 0; j < s.keys;) {
            const i64 end = std::min(s.keys, j + 1 + numbers.below(longest));
            const bool padding = numbers.below(5) == 0;
            for (std::int32_t position = 0; j < end; ++j, ++position) {
                c.key_documents.push_back(padding ? -1 : document);
                c.key_positions.push_back(position);
            }
            ++document;
        }
    }
    if (numbers.below(3) == 0) {  // a row in another order, as a rank of a zigzag holds it
        for (i64 n = 0; n < s.batch * s.keys; ++n) {
            const i64 row = n / s.keys * s.keys, other = row + numbers.below(s.keys);
            std::swap(c.key_documents[static_cast<size_t>(n)], c.key_documents[static_cast<size_t>(other)]);
            std::swap(c.key_positions[static_cast<size_t>(n)], c.key_positions[static_cast<size_t>(other)]);
        }
    }
    c.documents = c.key_documents;
    c.positions = c.key_positions;
    if (same) return c;
    c.documents.clear();
    c.positions.clear();
    for (i64 i = 0; i < s.batch * s.queries; ++i) {
        const auto of = static_cast<size_t>(i / s.queries * s.keys + numbers.below(s.keys));
        c.documents.push_back(numbers.below(6) == 0 ? 77 : c.key_documents[of]);  // 77: no key has it
        c.positions.push_back(c.key_positions[of]);
    }
    return c;
}

/// A matrix [rows, cols] of one head.
struct Matrix {
    i64 rows, cols;
    Values at;
    Matrix(i64 r, i64 c) : rows(r), cols(c), at(static_cast<size_t>(r * c)) {}
    double& operator()(i64 r, i64 c) { return at[static_cast<size_t>(r * cols + c)]; }
    double operator()(i64 r, i64 c) const { return at[static_cast<size_t>(r * cols + c)]; }
};

Matrix times(const Matrix& a, bool turn_a, const Matrix& b, bool turn_b) {
    Matrix y(turn_a ? a.cols : a.rows, turn_b ? b.rows : b.cols);
    const i64 inner = turn_a ? a.rows : a.cols;
    for (i64 r = 0; r < y.rows; ++r)
        for (i64 c = 0; c < y.cols; ++c)
            for (i64 i = 0; i < inner; ++i) y(r, c) += (turn_a ? a(i, r) : a(r, i)) * (turn_b ? b(c, i) : b(i, c));
    return y;
}

/// Head `head` of `heads` of x [batch, rows, heads, dim].
Matrix head_of(const Values& x, i64 batch, i64 rows, i64 heads, i64 head, i64 dim) {
    Matrix m(rows, dim);
    for (i64 r = 0; r < rows; ++r)
        for (i64 d = 0; d < dim; ++d) m(r, d) = x[static_cast<size_t>(((batch * rows + r) * heads + head) * dim + d)];
    return m;
}

void add_head(Values& x, const Matrix& m, i64 batch, i64 heads, i64 head) {
    for (i64 r = 0; r < m.rows; ++r)
        for (i64 d = 0; d < m.cols; ++d)
            x[static_cast<size_t>(((batch * m.rows + r) * heads + head) * m.cols + d)] += m(r, d);
}

bool sees(const Case& c, i64 b, i64 i, i64 j) {
    const auto query = static_cast<size_t>(b * c.s.queries + i), key = static_cast<size_t>(b * c.s.keys + j);
    const i64 back = i64{c.positions[query]} - c.key_positions[key];
    const bool together = c.documents[query] >= 0 && c.documents[query] == c.key_documents[key];
    return together && (!c.s.causal || back >= 0) && (c.s.window == 0 || back < c.s.window);
}

/// Softmax of the whole matrix of scores times a mask, and its gradient by the rows' own sums.
Result by_matrices(const Case& c) {
    const Attention& s = c.s;
    Result all{Values(c.d_o.size()), Values(c.d_lse.size()), Values(c.q.size()), Values(c.k.size()),
               Values(c.v.size())};
    for (i64 b = 0; b < s.batch; ++b) {
        for (i64 h = 0; h < s.heads; ++h) {
            const i64 g = h / (s.heads / s.groups);
            const Matrix q = head_of(c.q, b, s.queries, s.heads, h, s.head_dim);
            const Matrix k = head_of(c.k, b, s.keys, s.groups, g, s.head_dim);
            const Matrix v = head_of(c.v, b, s.keys, s.groups, g, s.values());
            const Matrix d_o = head_of(c.d_o, b, s.queries, s.heads, h, s.values());
            Matrix p = times(q, false, k, true);
            for (i64 i = 0; i < s.queries; ++i) {
                double sum = 0;
                for (i64 j = 0; j < s.keys; ++j) sum += p(i, j) = sees(c, b, i, j) ? std::exp(s.scale * p(i, j)) : 0;
                for (i64 j = 0; j < s.keys; ++j) p(i, j) = sum > 0 ? p(i, j) / sum : 0;
                all.lse[static_cast<size_t>((b * s.heads + h) * s.queries + i)] = std::log(sum);
            }
            add_head(all.o, times(p, false, v, false), b, s.heads, h);
            add_head(all.dv, times(p, true, d_o, false), b, s.groups, g);
            Matrix slope = times(d_o, false, v, true);
            for (i64 i = 0; i < s.queries; ++i) {
                double mean = 0;
                for (i64 j = 0; j < s.keys; ++j) mean += p(i, j) * slope(i, j);
                const double of_lse = c.d_lse[static_cast<size_t>((b * s.heads + h) * s.queries + i)];
                for (i64 j = 0; j < s.keys; ++j) slope(i, j) = s.scale * p(i, j) * (slope(i, j) - mean + of_lse);
            }
            add_head(all.dq, times(slope, false, k, false), b, s.heads, h);
            add_head(all.dk, times(slope, true, q, false), b, s.groups, g);
        }
    }
    return all;
}

Result by_kernels(const Case& c) {
    Context context;
    Result all{Values(c.d_o.size()), Values(c.d_lse.size()), Values(c.q.size()), Values(c.k.size()),
               Values(c.v.size())};
    const AttentionIndex index = c.s.indexed ? c.index() : AttentionIndex{};
    ref.attention(context, c.s, c.q.data(), c.k.data(), c.v.data(), index, all.o.data(), all.lse.data());
    ref.attention_grad(context, c.s, c.q.data(), c.k.data(), c.v.data(), all.o.data(), all.lse.data(), c.d_o.data(),
                       index, c.d_lse.data(), all.dq.data(), all.dk.data(), all.dv.data());
    return all;
}

void check_equal(const Result& got, const Result& expected) {
    const auto check = [](const char* what, const Values& a, const Values& b) {
        INFO(what);
        REQUIRE(a.size() == b.size());
        for (size_t i = 0; i < a.size(); ++i) {
            if (std::isinf(b[i]))
                CHECK(a[i] == b[i]);
            else
                CHECK(a[i] == Approx(b[i]).margin(1e-12).epsilon(1e-12));
        }
    };
    check("o", got.o, expected.o);
    check("lse", got.lse, expected.lse);
    check("dq", got.dq, expected.dq);
    check("dk", got.dk, expected.dk);
    check("dv", got.dv, expected.dv);
}

}  // namespace

TEST_CASE("attention by index equals softmax over a masked matrix, its gradients too, in 200 drawn cases") {
    Numbers numbers(31);
    i64 blind = 0;
    for (int round = 0; round < 200; ++round) {
        const Case c = drawn(numbers);
        INFO("round " << round << ": batch " << c.s.batch << ", queries " << c.s.queries << ", keys " << c.s.keys
                      << ", heads " << c.s.heads << " on " << c.s.groups << ", window " << c.s.window);
        const Result got = by_kernels(c), expected = by_matrices(c);
        check_equal(got, expected);
        blind += std::count_if(got.lse.begin(), got.lse.end(), [](double l) { return l == -INFINITY; });
    }
    CHECK(blind > 100);  // queries that see no key
}

TEST_CASE("one document a row with positions in order is the causal triangle, bit for bit") {
    Numbers numbers(5);
    for (const i64 window : {0, 3}) {
        Case c = sized({.batch = 2,
                        .queries = 9,
                        .keys = 9,
                        .heads = 4,
                        .groups = 2,
                        .head_dim = 3,
                        .scale = 0.5,
                        .causal = true,
                        .window = window},
                       numbers);
        for (i64 i = 0; i < 18; ++i) {
            c.key_documents.push_back(static_cast<std::int32_t>(i / 9));
            c.key_positions.push_back(static_cast<std::int32_t>(i % 9) + 100);
        }
        c.documents = c.key_documents;
        c.positions = c.key_positions;
        const Result plain = by_kernels(c);
        c.s.indexed = true;
        const Result indexed = by_kernels(c);
        CHECK(plain.o == indexed.o);
        CHECK(plain.lse == indexed.lse);
        CHECK(plain.dq == indexed.dq);
        CHECK(plain.dk == indexed.dk);
        CHECK(plain.dv == indexed.dv);
    }
}

/// For scripts/conformance/attention.py: each drawn case as lines of a name and numbers, then what the kernels write.
TEST_CASE("print the drawn attentions by index", "[.drawn]") {
    Numbers numbers(31);
    const auto line = [](const char* name, const auto& all) {
        std::printf("%s", name);
        for (const auto number : all) std::printf(" %.17g", static_cast<double>(number));
        std::printf("\n");
    };
    for (int round = 0; round < 200; ++round) {
        const Case c = drawn(numbers);
        const Attention& s = c.s;
        line("sizes", std::vector<i64>{s.batch, s.queries, s.keys, s.heads, s.groups, s.head_dim, s.values(), s.causal,
                                       s.window});
        line("scale", Values{s.scale});
        line("documents", c.documents), line("positions", c.positions);
        line("key_documents", c.key_documents), line("key_positions", c.key_positions);
        line("q", c.q), line("k", c.k), line("v", c.v), line("do", c.d_o), line("dlse", c.d_lse);
        const Result r = by_kernels(c);
        line("o", r.o), line("lse", r.lse), line("dq", r.dq), line("dk", r.dk), line("dv", r.dv);
    }
}
