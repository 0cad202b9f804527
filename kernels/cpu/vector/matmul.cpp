// Products with bias, accumulation and gelu, in f32 or from and to 16-bit types.
//
// With Products::onednn, f32 is passed to oneDNN in place, and 16-bit operands are widened block by block to scratch
// that fits the caches, because AVX2 has no 16-bit products. However they are made, sums are f32 and are rounded once.
#include "kernels/cpu/blocks.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/rows.h"
#include "kernels/math.h"

namespace orrery::kernels::cpu::ORRERY_ISA {

namespace {

/// Rows and columns of a block, and the depth of the contracted dim that it takes at once.
constexpr i64 block_m = 512, block_n = 768, block_k = 1024;

/// The epilogue of a product: y (+)= ab + bias; pre (if any) = ab + bias, y = gelu(pre); or y = gelu'(pre) (ab).
enum class Then { nothing, gelu_tanh, gelu_erf, gelu_tanh_slope, gelu_erf_slope };

struct Finish {
    In bias;
    Out y, pre;
    bool accumulate = false;
    Then then = Then::nothing;

    bool gelu() const { return then == Then::gelu_tanh || then == Then::gelu_erf; }
    /// Where the product itself is stored, rounded as between two kernels: fused or not, the bits are the same.
    Out made() const { return gelu() && pre.data != nullptr ? pre : y; }
};

/// The operands of one batch index, and the range of the contracted dim that it sums over.
struct Product {
    const Matmul& s;
    In a, b;
    Finish finish;
    Products by;
    i64 k_begin = 0, k_end = s.k;

    bool plain() const { return a.type == Type::f32 && b.type == Type::f32; }
    bool native() const { return by == Products::native && a.type == b.type && has_native(a.type); }
    /// Whether one call takes operands of any type over the whole contracted dim, without widening them first.
    bool as_they_lie() const { return by == Products::blocks || native(); }
    /// Whether sums accumulate directly in their destination.
    bool direct() const { return finish.made().type == Type::f32; }
};

In shifted(In x, i64 elements) { return {x.as<char>() + elements * size_of(x.type), x.type}; }
Out shifted(Out y, i64 elements) {
    return {y.data == nullptr ? nullptr : y.as<char>() + elements * size_of(y.type), y.type};
}

/// A block of a stored matrix as floats: in place if it is f32, else widened to `buffer`; sets its leading dim.
const float* block(In x, i64 row, i64 rows, i64 col, i64 cols, i64 stride, float* buffer, i64& leading) {
    if (x.type == Type::f32) {
        leading = stride;
        return x.as<float>() + row * stride + col;
    }
    leading = cols;
    for (i64 r = 0; r < rows; ++r) fetch(x, (row + r) * stride + col, cols, buffer + r * cols);
    return buffer;
}

/// Blocks of op(a) [m,k] and op(b) [k,n]: stored rows and columns are swapped if transposed.
const float* block_a(const Product& p, i64 m, i64 rows, i64 k, i64 depth, float* buffer, i64& leading) {
    return p.s.trans_a ? block(p.a, k, depth, m, rows, p.s.m, buffer, leading)
                       : block(p.a, m, rows, k, depth, p.s.k, buffer, leading);
}
const float* block_b(const Product& p, i64 k, i64 depth, i64 n, i64 cols, float* buffer, i64& leading) {
    return p.s.trans_b ? block(p.b, n, cols, k, depth, p.s.k, buffer, leading)
                       : block(p.b, k, depth, n, cols, p.s.n, buffer, leading);
}

/// Rows m.. and columns n.. of op(a) op(b), without widening.
void whole_product(const Product& p, i64 m, i64 rows, i64 n, i64 cols, bool add, float* c, i64 ldc, float* scratch) {
    const Matmul& s = p.s;
    const i64 lda = s.trans_a ? s.m : s.k, ldb = s.trans_b ? s.k : s.n, depth = p.k_end - p.k_begin;
    const Packed a = Packed{p.a, lda, s.trans_a}.from(m, p.k_begin),
                 b = Packed{p.b, ldb, !s.trans_b}.from(n, p.k_begin);
    if (p.native())
        return gemm_native(a.x.type, s.trans_a, s.trans_b, rows, cols, depth, a.x.data, lda, b.x.data, ldb, add, c,
                           ldc);
    blocks_gemm(a, b, rows, cols, depth, add, c, ldc, scratch);
}

/// The functions after a product, over n floats at `x`, which are elements at .. of the product. n <= tile.
void apply(const Finish& f, i64 at, i64 n, float* x) {
    float buffer[tile];
    if (f.made().type != Type::f32) fetch(f.made(), at, n, x);
    if (f.gelu()) {
        float* y = target(f.y, at, buffer);
        if (f.then == Then::gelu_erf)
            map(
                y, n, [](Vec v) { return math::gelu_erf(v); }, x);
        else
            map(
                y, n, [](Vec v) { return math::gelu_tanh(v); }, x);
        return flush(f.y, at, n, y);
    }
    const float* pre = fetch(f.pre, at, n, buffer);
    if (f.then == Then::gelu_erf_slope)
        map(
            x, n, [](Vec v, Vec d) { return d * math::gelu_erf_slope(v); }, pre, x);
    else
        map(
            x, n, [](Vec v, Vec d) { return d * math::gelu_tanh_slope(v); }, pre, x);
    flush(f.y, at, n, x);
}

/// Stores n <= tile sums from `x` to elements at .. of the result; `x` may be the destination itself.
void finish_run(const Finish& f, i64 at, i64 n, float* x, const float* bias) {
    float old[tile];
    if (bias != nullptr)
        map(
            x, n, [](Vec u, Vec v) { return u + v; }, x, bias);
    if (f.accumulate && f.y.type != Type::f32) {
        map(
            x, n, [](Vec u, Vec v) { return u + v; }, x, fetch(f.y, at, n, old));
    }
    flush(f.made(), at, n, x);
    if (f.then != Then::nothing) apply(f, at, n, x);
}

/// Stores rows of sums. biased: the bias is included already.
void finish_rows(const Product& p, i64 m, i64 rows, i64 n, i64 cols, float* c, i64 leading, bool biased) {
    const Finish& f = p.finish;
    const auto at = [&](i64 r, i64 j) { return (m + r) * p.s.n + n + j; };
    if (biased || f.bias.data == nullptr) {  // in storage order
        for (i64 r = 0; r < rows; ++r) {
            for (i64 j = 0; j < cols; j += tile)
                finish_run(f, at(r, j), smaller(tile, cols - j), c + r * leading + j, nullptr);
        }
        return;
    }
    float buffer[tile];
    for (i64 j = 0; j < cols; j += tile) {
        const i64 size = smaller(tile, cols - j);
        const float* bias = fetch(f.bias, n + j, size, buffer);
        for (i64 r = 0; r < rows; ++r) finish_run(f, at(r, j), size, c + r * leading + j, bias);
    }
}

/// Rows m.. and columns n.. of one product, on this thread. scratch: see scratch_floats.
void run_tile(const Product& p, i64 m_begin, i64 m_end, i64 n_begin, i64 n_end, float* scratch) {
    const Matmul& s = p.s;
    const Finish& f = p.finish;
    const bool direct = p.direct();
    const i64 contracted = p.k_end - p.k_begin;
    float* const place = direct ? f.made().as<float>() : nullptr;
    if (direct && p.plain() && p.by != Products::blocks && f.bias.type == Type::f32 && f.bias.data != nullptr &&
        !f.accumulate && s.k > 0) {
        const i64 lda = s.trans_a ? s.m : s.k, ldb = s.trans_b ? s.k : s.n;
        float* const c = place + m_begin * s.n + n_begin;
        gemm_bias(s.trans_a, s.trans_b, m_end - m_begin, n_end - n_begin, s.k,
                  p.a.as<float>() + m_begin * (s.trans_a ? 1 : lda), lda,
                  p.b.as<float>() + n_begin * (s.trans_b ? ldb : 1), ldb, f.bias.as<float>() + n_begin, c, s.n);
        if (f.then != Then::nothing) finish_rows(p, m_begin, m_end - m_begin, n_begin, n_end - n_begin, c, s.n, true);
        return;
    }
    // f32 is split in blocks only to finish rows in cache; for smaller products that costs more than it gains.
    const bool lies = p.as_they_lie(), undivided = lies || p.plain();
    const i64 step_n = p.plain() || (lies && direct) ? n_end - n_begin : block_n;
    const i64 step_k = undivided && contracted > 0 ? contracted : block_k;
    const i64 step_m = direct && f.bias.data == nullptr && undivided ? m_end - m_begin : block_m;
    float* widened_a = scratch;
    float* widened_b = widened_a + (lies || p.a.type == Type::f32 ? 0 : block_m * block_k);
    float* sums = widened_b + (lies || p.b.type == Type::f32 ? 0 : block_k * block_n);
    float* packed = sums + (direct ? 0 : block_m * step_n);
    for (i64 n = n_begin; n < n_end; n += step_n) {
        const i64 cols = smaller(step_n, n_end - n);
        i64 ldb = 0;
        const bool whole = contracted <= step_k;
        const float* b = whole && !lies ? block_b(p, p.k_begin, contracted, n, cols, widened_b, ldb) : nullptr;
        for (i64 m = m_begin; m < m_end; m += step_m) {
            const i64 rows = smaller(step_m, m_end - m);
            float* c = direct ? place + m * s.n + n : sums;
            const i64 ldc = direct ? s.n : cols;
            if (lies) whole_product(p, m, rows, n, cols, direct && f.accumulate, c, ldc, packed);
            for (i64 k = p.k_begin; !lies && (k == p.k_begin || k < p.k_end); k += step_k) {
                const i64 depth = smaller(step_k, p.k_end - k);
                i64 lda = 0;
                if (!whole) b = block_b(p, k, depth, n, cols, widened_b, ldb);
                const float* a = block_a(p, m, rows, k, depth, widened_a, lda);
                gemm(s.trans_a, s.trans_b, rows, cols, depth, 1, a, lda, b, ldb,
                     k > p.k_begin || (direct && f.accumulate), c, ldc);
            }
            if (!direct || f.bias.data != nullptr || f.then != Then::nothing)
                finish_rows(p, m, rows, n, cols, c, ldc, false);
        }
    }
}

/// Scratch for tiles of at most tile_m by tile_n.
i64 scratch_floats(const Product& p, i64 tile_m, i64 tile_n) {
    i64 n = p.by == Products::blocks ? pack_floats(tile_m, tile_n, p.s.k) : 0;
    if (!p.as_they_lie() && p.a.type != Type::f32) n += block_m * block_k;
    if (!p.as_they_lie() && p.b.type != Type::f32) n += block_k * block_n;
    if (!p.direct()) n += block_m * (p.plain() ? tile_n : block_n);
    return n;
}

/// Splits m x n in parts_m x parts_n tiles with similar numbers of rows and columns.
struct Grid {
    int m = 1, n = 1;

    Grid(i64 rows, i64 cols, int parts) {
        i64 best = -1;
        for (int i = 1; i <= parts; ++i) {
            if (parts % i != 0) continue;
            const i64 edge = rows / i + cols / (parts / i);  // the operands that each tile reads
            if (best < 0 || edge < best) {
                best = edge;
                m = i;
                n = parts / i;
            }
        }
    }
};

/// Whether to split the sum: long sums over few outputs, as for the gradient of a weight, where tiles of y waste the
/// cores on packing operands (two cores reach 106-130 GFLOP/s with tiles and 154-177 with parts of the sum, [384,4096]
/// x [4096,1152..1536]).
bool by_sum(const Product& p, int parts) {
    const Matmul& s = p.s;
    return parts > 1 && p.direct() && p.finish.bias.data == nullptr && !p.finish.gelu() && s.k / parts >= 1024 &&
           s.k >= 2 * smaller(s.m, s.n);
}

/// Part 0 sums to y, the others to scratch that is then added to y, always in the order of the parts.
void sum_parts(const Product& whole, int parts, float* scratch, i64 floats) {
    const i64 outputs = whole.s.m * whole.s.n;
    float* sums = scratch + parts * floats;
    team(parts, [&](int part) {
        Product p = whole;
        p.k_begin = cut(whole.s.k, parts, part, 16);
        p.k_end = cut(whole.s.k, parts, part + 1, 16);
        if (part > 0) {
            p.finish.y = Out(sums + (part - 1) * outputs, Type::f32);
            p.finish.accumulate = false;
        }
        p.finish.then = Then::nothing;
        run_tile(p, 0, p.s.m, 0, p.s.n, scratch + part * floats);
    });
    float* y = whole.finish.y.as<float>();
    parallel(parts, outputs, tile, tile, [&](i64 begin, i64 end) {
        for (int part = 1; part < parts; ++part) {
            map(
                y + begin, end - begin, [](Vec u, Vec v) { return u + v; }, y + begin,
                sums + (part - 1) * outputs + begin);
        }
        for (i64 at = begin; whole.finish.then != Then::nothing && at < end; at += tile)
            apply(whole.finish, at, smaller(tile, end - at), y + at);
    });
}

/// How the threads share a product.
struct Shares {
    int parts;
    bool by_batch;
    Grid grid;
    bool sums;
    i64 floats;      ///< scratch of a part
    i64 all_floats;  ///< scratch of all parts

    Shares(int threads, const Product& first)
        : parts(parts_of(threads, first.s.batch * first.s.m * first.s.n * (first.s.k > 0 ? first.s.k : 1), worth)),
          by_batch(first.s.batch >= parts),
          grid(first.s.m, first.s.n, by_batch ? 1 : parts),
          sums(!by_batch && by_sum(first, parts)) {
        const Matmul& s = first.s;
        floats = scratch_floats(first, sums ? s.m : (s.m + grid.m - 1) / grid.m + 8,
                                sums ? s.n : (s.n + grid.n - 1) / grid.n + 16);
        all_floats = floats * parts + (sums ? (parts - 1) * s.m * s.n : 0);
    }

private:
    static constexpr i64 worth = 1 << 20;  ///< multiply-adds that pay for a thread
};

void run_all(Context& c, const Matmul& s, In a, In b, const Finish& finish) {
    const auto product = [&](i64 i) {
        Finish f = finish;
        f.y = shifted(f.y, i * s.m * s.n);
        f.pre = shifted(f.pre, i * s.m * s.n);
        return Product{s, shifted(a, i * s.m * s.k), shifted(b, s.shared_b ? 0 : i * s.k * s.n), f, c.products()};
    };
    const Shares shares(c.threads(), product(0));
    const auto& [parts, by_batch, grid, sums, floats, all_floats] = shares;
    float* scratch = static_cast<float*>(c.scratch(all_floats * 4));
    if (by_batch) {
        return team(parts, [&](int part) {
            const i64 end = cut(s.batch, parts, part + 1, 1);
            for (i64 i = cut(s.batch, parts, part, 1); i < end; ++i) {
                run_tile(product(i), 0, s.m, 0, s.n, scratch + part * floats);
            }
        });
    }
    for (i64 i = 0; i < s.batch; ++i) {
        if (sums) {
            sum_parts(product(i), parts, scratch, floats);
            continue;
        }
        team(parts, [&](int part) {
            const int pm = part / grid.n, pn = part % grid.n;
            run_tile(product(i), cut(s.m, grid.m, pm, 8), cut(s.m, grid.m, pm + 1, 8), cut(s.n, grid.n, pn, 16),
                     cut(s.n, grid.n, pn + 1, 16), scratch + part * floats);
        });
    }
}

void matmul_bias_gelu(Context& c, const Matmul& s, Unary op, In a, In b, In bias, Out y, Out pre) {
    const Then then = op == Unary::gelu_erf ? Then::gelu_erf : Then::gelu_tanh;
    run_all(c, s, a, b, {.bias = bias, .y = y, .pre = pre, .then = then});
}

void matmul_gelu_grad(Context& c, const Matmul& s, UnaryGrad op, In a, In b, In pre, Out dx) {
    const Then then = op == UnaryGrad::gelu_erf ? Then::gelu_erf_slope : Then::gelu_tanh_slope;
    const Out read(const_cast<void*>(pre.data), pre.type);
    run_all(c, s, a, b, {.bias = {}, .y = dx, .pre = read, .then = then});
}

}  // namespace

void matmul(Context& c, const Matmul& s, In a, In b, In bias, Out y) {
    run_all(c, s, a, b, {.bias = bias, .y = y, .pre = {}, .accumulate = s.accumulate});
}

i64 matmul_scratch(const Context& c, const Matmul& s, In a, In b, In bias, Out y) {
    const Finish finish{.bias = bias, .y = y, .pre = {}, .accumulate = s.accumulate};
    return Shares(c.threads(), Product{s, a, b, finish, c.products()}).all_floats * 4;
}

void matmul_rows(Products by, const Matmul& s, In a, In b, Out y, i64 begin, i64 end, float* scratch) {
    const Finish finish{.bias = {}, .y = y, .pre = {}, .accumulate = s.accumulate};
    run_tile(Product{s, a, b, finish, by}, begin, end, 0, s.n, scratch);
}

i64 matmul_rows_floats(Products by, const Matmul& s, In a, In b, Out y) {
    return scratch_floats(Product{s, a, b, {.bias = {}, .y = y, .pre = {}}, by}, s.m, s.n);
}

void add_matmul(Kernels& k) {
    k.matmul = matmul;
    k.matmul_bias_gelu = matmul_bias_gelu;
    k.matmul_gelu_grad = matmul_gelu_grad;
}

}  // namespace orrery::kernels::cpu::ORRERY_ISA
