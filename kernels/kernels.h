// Every kernel of the CPU, as a table of functions: reference::table(), cpu::table(). CUDA has an interface of its own.
//
// Legend: rows, cols: the leading dims flattened and the last one. f: any of f32, bf16, f16 (reference: f64 too).
// Operands are dense and row-major. Statistics and scalars are f32 (f64 with f64 data). Only bad_alloc is thrown;
// callers check shapes and types before. Elementwise kernels may write over an input of the same type and size.
#pragma once

#include <cmath>
#include <iterator>
#include <string>
#include <string_view>

#include "kernels/types.h"

namespace orrery::kernels {

enum class Unary { neg, exp, log, sqrt, rsqrt, cos, sin, tanh, sigmoid, silu, relu, square, abs, gelu_tanh, gelu_erf };
enum class UnaryGrad { silu, relu, gelu_tanh, gelu_erf };
enum class Binary { add, sub, mul, div, maximum, minimum, pow };
enum class Compare { less, less_equal, greater, greater_equal, equal };
enum class Reduce { sum, max };

/// An op and the enumerator that implements it.
template <class Enum>
struct NamedOp {
    std::string_view op;
    Enum does;
};

// The form of gelu is an attribute.
inline constexpr NamedOp<Unary> unary_ops[] = {
    {"neg", Unary::neg},         {"exp", Unary::exp},   {"log", Unary::log},   {"sqrt", Unary::sqrt},
    {"rsqrt", Unary::rsqrt},     {"cos", Unary::cos},   {"sin", Unary::sin},   {"tanh", Unary::tanh},
    {"sigmoid", Unary::sigmoid}, {"silu", Unary::silu}, {"relu", Unary::relu}, {"square", Unary::square},
    {"abs", Unary::abs}};
inline constexpr NamedOp<UnaryGrad> unary_grad_ops[] = {{"silu_grad", UnaryGrad::silu}, {"relu_grad", UnaryGrad::relu}};
inline constexpr NamedOp<Binary> binary_ops[] = {
    {"add", Binary::add},         {"sub", Binary::sub},         {"mul", Binary::mul}, {"div", Binary::div},
    {"maximum", Binary::maximum}, {"minimum", Binary::minimum}, {"pow", Binary::pow}};
inline constexpr NamedOp<Compare> compare_ops[] = {{"less", Compare::less},
                                                   {"less_equal", Compare::less_equal},
                                                   {"greater", Compare::greater},
                                                   {"greater_equal", Compare::greater_equal},
                                                   {"equal", Compare::equal}};
// Every enumerator has its op.
static_assert(std::size(unary_ops) == static_cast<size_t>(Unary::gelu_tanh) &&
              std::size(unary_grad_ops) == static_cast<size_t>(UnaryGrad::gelu_tanh) &&
              std::size(binary_ops) == static_cast<size_t>(Binary::pow) + 1 &&
              std::size(compare_ops) == static_cast<size_t>(Compare::equal) + 1);

enum class Draw { normal, uniform };  ///< deviation scale; in [-scale, scale)

/// y[b] = op(a[b]) op(b[b]) (+ bias): y is [batch, m, n]. trans_a: a[b] is stored [k, m]; trans_b: b[b] is stored [n,
/// k].
struct Matmul {
    std::int64_t batch = 1, m = 0, n = 0, k = 0;
    bool trans_a = false, trans_b = false;
    bool shared_b = false;    ///< one b for every batch index
    bool accumulate = false;  ///< y += instead of y =
    bool operator==(const Matmul&) const = default;
};

/// A grouped GEMM: y[g, e] = x[g, e] w[e], x [groups, experts, slots, k], w [experts, k, n] (trans_b: [experts, n, k]).
/// Only the first counts[g, e] of an expert's slots hold rows. `sorted`: x is [slots, k], the rows of each expert
/// directly after those of the previous one; there is one group.
struct GroupedMatmul {
    std::int64_t groups = 1, experts = 0, slots = 0, k = 0, n = 0;
    bool sorted = false, trans_b = false;
    bool accumulate = false;  ///< grouped_matmul_dw only: dw += instead of dw =

    /// Number of rows of x and y, including slots without rows.
    ORRERY_HOST_DEVICE std::int64_t rows() const { return sorted ? slots : groups * experts * slots; }
};

/// Rows of x that count for one expert in one group: from `first` on.
struct ExpertRows {
    std::int64_t first = 0, count = 0;
};
/// Sorted rows: O(expert). Counts below 0 and rows beyond the last slot do not count.
ORRERY_HOST_DEVICE ExpertRows expert_rows(const GroupedMatmul& s, const std::int32_t* counts, std::int64_t group,
                                          std::int64_t expert) {
    std::int64_t first = s.sorted ? 0 : (group * s.experts + expert) * s.slots, left = s.slots;
    for (std::int64_t e = 0; s.sorted && e < expert; ++e) {
        const std::int64_t before = counts[e] < 0 ? 0 : counts[e] < left ? counts[e] : left;
        first += before;
        left -= before;
    }
    const std::int64_t count = counts[group * s.experts + expert];
    return {first, count < 0 ? 0 : count < left ? count : left};
}

/// q [B, queries, H, D], k [B, keys, G, D], v [B, keys, G, V], o [B, queries, H, V], lse f32 [B, H, queries]. G divides
/// H. With `indexed` the operands have an AttentionIndex, and `shift` has no effect. With `blocks`, each of the
/// adjacent parts of a row has its own queries and keys: B counts the parts of all rows, and lse is [B / blocks, H,
/// blocks, queries].
struct Attention {
    std::int64_t batch = 0, queries = 0, keys = 0, heads = 0, groups = 0, head_dim = 0;
    double scale = 1;
    bool causal = false;
    std::int64_t shift = 0;      ///< causal: query i has position i + shift, and key j position j
    std::int64_t window = 0;     ///< causal: only keys less than `window` positions before the query; 0: all
    std::int64_t value_dim = 0;  ///< V; 0: D
    bool indexed = false;
    std::int64_t blocks = 1;  ///< parts of a row
    std::int64_t blind = 0;   ///< causal: in the first `blind` parts of each row no query sees a key

    /// V.
    ORRERY_HOST_DEVICE std::int64_t values() const { return value_dim > 0 ? value_dim : head_dim; }
    /// The index in lse of query i of head h, in part b of B.
    ORRERY_HOST_DEVICE std::int64_t statistic(std::int64_t b, std::int64_t h, std::int64_t i) const {
        return ((b / blocks * heads + h) * blocks + b % blocks) * queries + i;
    }
    /// The sizes with the shift of part b of B.
    ORRERY_HOST_DEVICE Attention part(std::int64_t b) const {
        Attention one = *this;
        if (b % blocks < blind) one.shift = -queries;
        return one;
    }
};

/// Documents and positions of queries, i32 [B, queries], and of keys, i32 [B, keys], in any order; all null when the
/// attention is not indexed. Query i sees key j when their documents are equal and not negative, and, if causal,
/// position j <= position i and, with a window, position i - position j < window.
struct AttentionIndex {
    const std::int32_t *documents = nullptr, *positions = nullptr;
    const std::int32_t *key_documents = nullptr, *key_positions = nullptr;
};

/// x [batch, seq, heads, dim]; row t has position start + t, or the one given. Rotates halves: (x[i], x[i + dim/2]), as
/// GPT-NeoX does, and multiplies by magnitude.
struct Rope {
    std::int64_t batch = 0, seq = 0, heads = 0, dim = 0, start = 0;
    double theta = 0;      ///< base of the wavelengths; required
    bool inverse = false;  ///< rotates back
    double factor = 1;     ///< factor of all wavelengths, or with original_positions of the long ones
    double low_freq_factor = 0, high_freq_factor = 0;  ///< of llama3
    double beta_fast = 0, beta_slow = 0;               ///< of yarn
    bool truncate = false;                             ///< of yarn: the range of pairs is rounded outwards
    std::int64_t original_positions = 0;
    double magnitude = 1;
};

/// Angle between consecutive positions of the pair (x[i], x[i + dim/2]): f = theta^(-2i/dim), scaled as in
/// `ROPE_INIT_FUNCTIONS` of transformers. "linear": f / factor. "llama3": b f + (1 - b) f / factor, where b grows from
/// 0 to 1 as original_positions over the wavelength goes from low_freq_factor to high_freq_factor. "yarn": the same,
/// where b falls from 1 to 0 as i goes from the pair that makes beta_fast turns in original_positions to that with
/// beta_slow. Always inlined, so that a copy compiled for AVX-512 never runs on a machine without it.
[[gnu::always_inline]] inline double turn(const Rope& s, std::int64_t i) {
    constexpr double circle = 6.283185307179586477;
    const auto pair = static_cast<double>(i), dim = static_cast<double>(s.dim);
    const double plain = __builtin_pow(s.theta, -2.0 * pair / dim);
    if (s.original_positions == 0) return plain / s.factor;
    const auto positions = static_cast<double>(s.original_positions);
    double kept = (positions * plain / circle - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor);
    if (s.beta_fast > 0) {
        const double per_pair = dim / (2 * __builtin_log(s.theta));
        double first = per_pair * __builtin_log(positions / (s.beta_fast * circle));
        double last = per_pair * __builtin_log(positions / (s.beta_slow * circle));
        if (s.truncate) first = __builtin_floor(first), last = __builtin_ceil(last);
        first = first < 0 ? 0 : first;
        last = last > dim - 1 ? dim - 1 : last;
        if (first == last) last += 0.001;
        kept = 1 - (pair - first) / (last - first);
    }
    kept = kept < 0 ? 0 : kept > 1 ? 1 : kept;
    return plain * (kept + (1 - kept) / s.factor);
}

/// The rows of the table in this shard: start .. start+rows-1 of the vocabulary.
struct Embedding {
    std::int64_t tokens = 0, start = 0, rows = 0, cols = 0;
    bool accumulate = false;  ///< embedding_grad only
};

/// A shape around one dim: [outer, size, inner].
struct Along {
    std::int64_t outer = 1, size = 0, inner = 1;
};

/// Elements of x [outer, size, inner] by ids [outer, picks, inner], or rows of `inner` elements by ids [outer, picks].
/// This shard has elements start .. start+size-1 of the dim; other ids select nothing.
struct Picks {
    Along x;
    std::int64_t picks = 0, start = 0;
    bool rows = false;
    bool accumulate = false;  ///< scatter_add only
};

/// Picks for adding to an embedding's table: rows by tokens.
ORRERY_HOST_DEVICE Picks picks_of(const Embedding& s) {
    return {.x = {1, s.rows, s.cols}, .picks = s.tokens, .start = s.start, .rows = true, .accumulate = s.accumulate};
}

/// A mixture of experts: rows x [groups, tokens, cols], slots i32 [groups, tokens, choices] and y [groups, experts,
/// slots, cols]. The number of a slot is expert * slots + place. This shard has `experts` experts from `start` on;
/// other numbers, such as -1, select nothing.
struct Slots {
    std::int64_t groups = 1, tokens = 0, choices = 0, experts = 0, slots = 0, cols = 0, start = 0;

    ORRERY_HOST_DEVICE std::int64_t chosen() const { return tokens * choices; }  ///< choices of a group
    ORRERY_HOST_DEVICE std::int64_t held() const { return experts * slots; }     ///< slots of a group
    ORRERY_HOST_DEVICE std::int64_t first() const { return start * slots; }      ///< number of the first slot held
    /// Index of a slot among those of the shard, or -1.
    ORRERY_HOST_DEVICE std::int64_t local(std::int32_t slot) const {
        const std::int64_t at = slot - first();
        return slot >= 0 && at >= 0 && at < held() ? at : -1;
    }
};

/// Columns start .. start+cols-1 of rows of logits over a vocabulary.
struct VocabShard {
    std::int64_t rows = 0, cols = 0, start = 0, vocab = 0;
    std::int32_t ignore = -1;
};

/// A loss of logits = x head (+ bias) in tiles of rows: x [rows, width], head [width, cols] (trans_b: [cols, width]),
/// bias [cols]. A rank has columns start .. start+cols-1 of the vocabulary.
struct TiledLoss {
    enum class Part {
        whole,       ///< loss and count, with gradients if `gradients`
        statistics,  ///< lse by block of the columns, and picked
        gradients,   ///< gradients for given tops and totals of the whole rows
    } part = Part::whole;
    std::int64_t rows = 0, width = 0, cols = 0, start = 0, vocab = 0;
    std::int64_t tile = 0;    ///< rows of a tile
    std::int64_t blocks = 1;  ///< of the columns; statistics only
    bool trans_b = false, bias = false;
    bool gradients = false, bias_gradient = false;  ///< dx and dhead; also dbias
    bool accumulate = false;                        ///< loss, count, dhead and dbias +=
    std::int32_t ignore = -1;

    VocabShard shard(std::int64_t n) const { return {n, cols, start, vocab, ignore}; }
};

/// Operands of TiledLoss; absent (data null) where it has none.
struct TiledLossData {
    In x, head, bias;
    const std::int32_t* targets = nullptr;
    In top, total;  ///< [rows]; gradients only
    Out loss, count;
    Out lse, picked;       ///< [rows, blocks], [rows]; statistics only
    Out dx, dhead, dbias;  ///< dx may be x, if of its type
};

struct AdamW {
    double beta1 = 0.9, beta2 = 0.999, eps = 1e-8, decay = 0;
};

/// Two attentions of the same queries over disjoint keys: o [batch, queries, heads, dim], lse [batch, heads, queries].
struct Merge {
    std::int64_t batch = 0, queries = 0, heads = 0, dim = 0;

    std::int64_t rows() const { return batch * queries * heads; }
};

/// The index in lse of row `row` of o, which has `dim` elements.
ORRERY_HOST_DEVICE std::int64_t statistic_of(const Merge& s, std::int64_t row) {
    const std::int64_t query = row / s.heads;
    return (query / s.queries * s.heads + row % s.heads) * s.queries + query % s.queries;
}

/// The shares of both in their merge, by the log-sum-exp of each; 0 and -inf where neither sees a key.
template <class T>
struct MergeShares {
    T a, b, lse;
};
template <class T>
ORRERY_HOST_DEVICE MergeShares<T> merge_shares(T a, T b) {
    using std::exp, std::log;
    constexpr T none = -static_cast<T>(__builtin_inff());
    if (a == none && b == none) return {T(0), T(0), none};
    const T top = a > b ? a : b, x = exp(a - top), y = exp(b - top), sum = x + y;
    return {x / sum, y / sum, top + log(sum)};
}

/// Rows of `cols` elements in blocks; the last block of a row may be shorter.
struct Blocks {
    std::int64_t rows = 1, cols = 0, block = 0;

    ORRERY_HOST_DEVICE std::int64_t blocks_per_row() const { return (cols + block - 1) / block; }
    ORRERY_HOST_DEVICE std::int64_t count() const { return rows * blocks_per_row(); }
    /// Index of the first element of block b, and its number of elements.
    ORRERY_HOST_DEVICE std::int64_t first(std::int64_t b) const {
        return b / blocks_per_row() * cols + b % blocks_per_row() * block;
    }
    ORRERY_HOST_DEVICE std::int64_t size(std::int64_t b) const {
        const std::int64_t left = cols - b % blocks_per_row() * block;
        return left < block ? left : block;
    }
};

/// What the elements of a block become, by the block's scale s. The formulas are in kernels/codes.h.
enum class Code : std::uint8_t {
    i8,      ///< q s, q from -127 to 127
    i4,      ///< q s, q from -7 to 7
    i2,      ///< (q + 1/2) s, q from -2 to 1
    sign,    ///< (2 q + 1) s, q -1 or 0
    f8e4m3,  ///< q s
    f8e5m2,  ///< q s
};

struct Kernels {
    using i64 = std::int64_t;

    /// y[i] = value.
    void (*full)(Context&, Out y, i64 n, double value);
    /// y from Philox keyed by (*seed, stream) and counted by the global element index; y is f32 (f64).
    void (*random)(Context&, Out y, Region at, Draw kind, double scale, std::uint64_t stream,
                   const std::uint32_t* seed);
    /// y = x / (1-p) where the element's draw is >= p, else 0; same keys as random. Its gradient is itself on dy.
    void (*dropout)(Context&, In x, Out y, Region at, double p, std::uint64_t stream, const std::uint32_t* seed);

    void (*unary)(Context&, Unary, In x, Out y, i64 n);
    /// dx = dy * op'(x).
    void (*unary_grad)(Context&, UnaryGrad, In x, In dy, Out dx, i64 n);
    /// y = x * by.
    void (*scale)(Context&, In x, Out y, i64 n, double by);
    /// y = x in another type (any to any; float to integer truncates).
    void (*cast)(Context&, In x, Out y, i64 n);
    /// y [the broadcast of both shapes, from the right] = op(a, b).
    void (*binary)(Context&, Binary, In a, Shape a_shape, In b, Shape b_shape, Out y);
    /// y u8 = a op b, broadcast; a and b also i32.
    void (*compare)(Context&, Compare, In a, Shape a_shape, In b, Shape b_shape, Out y);
    /// y = c ? a : b, broadcast; c u8.
    void (*select)(Context&, In c, Shape c_shape, In a, Shape a_shape, In b, Shape b_shape, Out y);
    /// y = silu(gate) * up.
    void (*swiglu)(Context&, In gate, In up, Out y, i64 n);
    void (*swiglu_grad)(Context&, In gate, In up, In dy, Out dgate, Out dup, i64 n);

    /// See Matmul. bias [n] may be absent (data null). Operands f32 or bf16; y either, f32 sums in both cases.
    /// The weight gradient dw[k,n] of x[rows,k], dy[rows,n] is {m=k, n=n, k=rows, trans_a=true}.
    void (*matmul)(Context&, const Matmul&, In a, In b, In bias, Out y);
    /// pre = a b + bias (may be absent); y = gelu(pre). op: gelu_tanh or gelu_erf. No accumulate.
    void (*matmul_bias_gelu)(Context&, const Matmul&, Unary op, In a, In b, In bias, Out y, Out pre);
    /// dx = gelu'(pre) * (a b). op: gelu_tanh or gelu_erf; pre like dx. No accumulate.
    void (*matmul_gelu_grad)(Context&, const Matmul&, UnaryGrad op, In a, In b, In pre, Out dx);
    /// See GroupedMatmul. y[row] = x[row] op(w[expert]); 0 for rows that do not count, which are not read. One f.
    void (*grouped_matmul)(Context&, const GroupedMatmul&, In x, In w, const std::int32_t* counts, Out y);
    /// dw [experts, k, n] = x^T dy over the rows of each expert that count. x and dy one f; dw any, summed in f32.
    void (*grouped_matmul_dw)(Context&, const GroupedMatmul&, In x, In dy, const std::int32_t* counts, Out dw);

    /// y = sum or max of x over the dims whose bit is set in dims (bit d: dim d). accumulate: y += (sum only).
    void (*reduce)(Context&, Reduce, In x, Shape shape, std::uint32_t dims, Out y, bool accumulate);
    /// y f32[] = sum of squares, in an order that does not depend on the threads.
    void (*sumsq)(Context&, In x, Out y, i64 n);
    /// *y = 1 when no element is infinite or NaN, else 0.
    void (*all_finite)(Context&, In x, std::uint8_t* y, i64 n);

    void (*softmax)(Context&, In x, Out y, i64 rows, i64 cols);
    /// dx = y * (dy - sum(y * dy)).
    void (*softmax_grad)(Context&, In y, In dy, Out dx, i64 rows, i64 cols);
    /// y = (x - mean) * rstd * gain + bias; mean and rstd [rows]. With a residual (absent: data null) x + residual, as
    /// rounded in sum, replaces x; sum may alias x or the residual.
    void (*layernorm)(Context&, In x, In gain, In bias, In residual, Out y, Out mean, Out rstd, Out sum, i64 rows,
                      i64 cols, double eps);
    /// dsum (absent: data null; may be dx) is added to dx after dx is rounded. dgain, dbias [cols] f32; accumulate
    /// applies to these two only.
    void (*layernorm_grad)(Context&, In x, In gain, In mean, In rstd, In dy, In dsum, Out dx, Out dgain, Out dbias,
                           i64 rows, i64 cols, bool accumulate);
    /// y = x * rstd * gain with rstd = 1 / sqrt(mean(x^2) + eps). Residual and dsum like layernorm's.
    void (*rmsnorm)(Context&, In x, In gain, In residual, Out y, Out rstd, Out sum, i64 rows, i64 cols, double eps);
    void (*rmsnorm_grad)(Context&, In x, In gain, In rstd, In dy, In dsum, Out dx, Out dgain, i64 rows, i64 cols,
                         bool accumulate);

    /// y [tokens, cols] = table[token - start], or 0 when this shard lacks the row.
    void (*embedding)(Context&, const Embedding&, const std::int32_t* tokens, In table, Out y);
    /// dtable f32 [rows, cols] = sum of dy over equal tokens, in the order of the tokens.
    void (*embedding_grad)(Context&, const Embedding&, const std::int32_t* tokens, In dy, Out dtable);
    /// positions i32 [batch, seq], or null.
    void (*rope)(Context&, const Rope&, In x, const std::int32_t* positions, Out y);

    /// y [outer, picks, inner] = the elements of x that ids select, zero bytes for ids outside of the shard. Any type.
    void (*gather)(Context&, const Picks&, In x, const std::int32_t* ids, Out y);
    /// y [outer, size, inner] = the sums of x [outer, picks, inner] by ids, each in f32 from pick 0 on: the same bits
    /// on all devices and for all numbers of threads.
    void (*scatter_add)(Context&, const Picks&, In x, const std::int32_t* ids, Out y);
    /// values and ids [outer, k, inner]: the k largest elements in descending order; NaN is above all numbers; equal
    /// elements (0 and -0, or NaNs) by their index.
    void (*top_k)(Context&, const Along&, i64 k, In x, Out values, std::int32_t* ids);
    /// y: running sums of x, each including its own element unless `exclusive`; reverse: from there to the end. Summed
    /// in f64. x may be y.
    void (*cumsum)(Context&, const Along&, bool reverse, bool exclusive, In x, Out y);
    /// y [outer, size, inner] = start + its index along size; y i32 or f.
    void (*iota)(Context&, const Along&, i64 start, Out y);
    /// y [n, cols] = 1 in column id - start, else 0; y i32 or f.
    void (*one_hot)(Context&, const std::int32_t* ids, i64 n, i64 start, i64 cols, Out y);

    /// x f32, bf16 or f16 [rows, cols] -> q [rows, cols] (i8 or 8-bit floats, by the code), scale [rows, blocks].
    /// narrow: scale is bf16, rounded up; otherwise f32. q and scale must not overlap x. Reads x twice.
    void (*quantize)(Context&, const Blocks&, Code, bool narrow, In x, void* q, Out scale);
    /// y [rows, cols] = the numbers that q encodes with scale [rows, blocks], rounded to the type of y.
    void (*dequantize)(Context&, const Blocks&, Code, const void* q, In scale, Out y);
    /// Packs the last `bits` (4, 2 or 1) bits of each code of q into y u8 [rows, ceil(cols * bits / 8)], the first code
    /// in the lowest bits. Bits after the end of a row are 0.
    void (*pack)(Context&, int bits, const std::int8_t* q, std::uint8_t* y, i64 rows, i64 cols);
    /// The inverse of pack: q [rows, cols]. The highest of the `bits` bits is the sign.
    void (*unpack)(Context&, int bits, const std::uint8_t* y, std::int8_t* q, i64 rows, i64 cols);
    /// x [rows, cols] -> values (x's type) and ids [rows, blocks, k]: the k elements of largest magnitude of each
    /// block, in ascending order of their index in the block, which ids holds. Ties: the lower index first; NaN is
    /// above all numbers. A block of fewer than k elements: all of them, then 0 with id -1.
    void (*block_top_k)(Context&, const Blocks&, i64 k, In x, Out values, std::int32_t* ids);
    /// y [matrices, rows, cols] = x with orthonormal columns (kernels/factors.h); y may be x. Reads x twice and y
    /// twice; 2 rows cols^2 multiply-adds in f64 a matrix. A GPU has a block of threads for a matrix.
    void (*orthogonalize)(Context&, i64 matrices, i64 rows, i64 cols, In x, Out y);

    /// slots i32 like ids [groups, tokens, choices], load i32 [groups, experts]: each choice, in order, gets the next
    /// place of its expert, or -1 when none is left or its id is not of an expert. With weights (absent: data null) the
    /// choices of largest weight get places (in the order of top_k), in order again. load counts all choices.
    void (*assign_slots)(Context&, const Slots&, const std::int32_t* ids, In weights, std::int32_t* slots,
                         std::int32_t* load);
    /// y = x by slots, times weights (absent: data null), 0 where no choice has the slot; a slot of several choices
    /// gets their sum, in f32 in order.
    void (*dispatch)(Context&, const Slots&, In x, const std::int32_t* slots, In weights, Out y);
    /// x [groups, tokens, cols] = the sum over choices of weight * the row of its slot in y, in f32 in order.
    void (*combine)(Context&, const Slots&, In y, const std::int32_t* slots, In weights, Out x);
    /// dots f32 like slots: the inner product of the token's row of x with the slot's of y, or 0.
    void (*slot_dots)(Context&, const Slots&, In y, In x, const std::int32_t* slots, Out dots);

    /// o = softmax(scale q k^T) v, lse = log of the sum of exponentials. A query that sees no key: o = 0, lse = -inf.
    void (*attention)(Context&, const Attention&, In q, In k, In v, const AttentionIndex&, Out o, Out lse);
    /// With p the softmax: dv = p^T do, ds = scale p (do v^T - sum(do o) + dlse), dq = ds k, dk = ds^T q. d_lse f32
    /// like lse; absent (data null): 0. A query that sees no key has dq = 0, whatever d_lse is.
    void (*attention_grad)(Context&, const Attention&, In q, In k, In v, In o, In lse, In d_o, const AttentionIndex&,
                           In d_lse, Out dq, Out dk, Out dv);

    /// loss = sum of -log softmax(logits)[target] over rows with target != ignore; count = how many. dlogits (absent:
    /// data null; may be logits itself) = scale * (softmax - onehot), 0 for ignored rows; scale absent: 1. A target
    /// outside [0, vocab): loss NaN.
    void (*cross_entropy)(Context&, In logits, const std::int32_t* targets, In scale, Out loss, Out count, Out dlogits,
                          i64 rows, i64 vocab, std::int32_t ignore);
    /// For a shard of the vocabulary: total [rows] = sum of exp(logit - top), picked [rows] = the target's logit, or 0
    /// when the shard lacks it; both 0 for ignored rows, picked NaN for a target outside the vocabulary.
    void (*cross_entropy_stats)(Context&, const VocabShard&, In logits, In top, const std::int32_t* targets, Out total,
                                Out picked);
    /// loss = sum of top + log(total) - picked over rows with target != ignore; count = how many.
    void (*cross_entropy_loss)(Context&, In top, In total, In picked, const std::int32_t* targets, Out loss, Out count,
                               i64 rows, std::int32_t ignore);
    /// dlogits (may be logits) = scale * (exp(logit - top) / total - onehot) of a shard, 0 for ignored rows.
    void (*cross_entropy_grad)(Context&, const VocabShard&, In logits, In top, In total, const std::int32_t* targets,
                               In scale, Out dlogits);

    /// In place: p, m, v f32. g is multiplied by *scale first; *step counts from 1; nothing happens when *apply is 0
    /// (apply may be null). p -= lr * (mhat / (sqrt(vhat) + eps) + decay * p).
    void (*adamw)(Context&, const AdamW&, Out p, In g, Out m, Out v, In lr, In scale, In step,
                  const std::uint8_t* apply, i64 n);

    /// y[.., j_perm, ..]: dim d of y is dim perm[d] of x. Any type, like slice, concat and pad.
    void (*transpose)(Context&, In x, Shape shape, std::span<const int> perm, Out y);
    void (*slice)(Context&, In x, Shape shape, int dim, i64 start, i64 size, Out y);
    /// sizes[i]: the size of x[i] along dim; the other dims are those of shape.
    void (*concat)(Context&, std::span<const In> x, Shape shape, int dim, Shape sizes, Out y);
    void (*pad)(Context&, In x, Shape shape, int dim, i64 before, i64 after, Out y);
    /// y[i] = x[i - by] along dim, around the end; 0 <= by < shape[dim].
    void (*roll)(Context&, In x, Shape shape, int dim, i64 by, Out y);

    /// The attention over the keys of both a and b: o = pa o_a + pb o_b with the shares of merge_shares, o and lse f32
    /// (f64). o may be o_a or o_b.
    void (*merge)(Context&, const Merge&, In o_a, In lse_a, In o_b, In lse_b, Out o, Out lse);
    /// d_lse may be absent (data null). do_a = pa d_o, dlse_a = pa (d_lse + pb sum(d_o (o_a - o_b))); b accordingly.
    void (*merge_grad)(Context&, const Merge&, In o_a, In lse_a, In o_b, In lse_b, In d_o, In d_lse, Out do_a,
                       Out dlse_a, Out do_b, Out dlse_b);

    /// Losses and gradients as by matmul, cross_entropy (a shard of the vocabulary: as by cross_entropy_stats and
    /// cross_entropy_grad) and the GEMMs of dlogits, but of s.tile rows at a time: logits and dlogits are rounded to
    /// the type of x, and exist for one tile. lse: log of the sum of exponentials; 0 for ignored rows.
    void (*tiled_loss)(Context&, const TiledLoss&, const TiledLossData&);
};

namespace reference {
/// Straightforward, one thread, double inside; f64 operands allowed everywhere. Slow; allocates.
const Kernels& table();
}  // namespace reference

namespace cpu {
enum class Isa { portable, avx2, avx512 };
/// The widest instruction set of this machine, or the narrower one that ORRERY_CPU_ISA names.
Isa isa();
bool available(Isa);
/// Vectorised; for matrix products what the context says.
const Kernels& table(Isa);
inline const Kernels& table() { return table(isa()); }
/// "" when products can run so on this processor, by its flags; otherwise the reason.
std::string why_not(Products);
std::string onednn_version();
/// Those that oneDNN lets itself use, by the processor and its environment variable: a number of its own.
std::string onednn_instructions();
}  // namespace cpu

}  // namespace orrery::kernels
