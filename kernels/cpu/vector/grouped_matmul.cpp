// GEMMs of rows by the matrix of their expert: for each expert one product of the table's kind over the rows that
// count, on one thread. Rows of an expert in several groups are copied together if there are few in each, so that its
// matrix is packed once: a copy moves rows (k + n) elements, packing k n.
#include <cstring>

#include "kernels/cpu/blocks.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/tile.h"

namespace orrery::kernels::cpu::ORRERY_ISA {

namespace {

ORRERY_INLINE i64 within(i64 x, i64 least, i64 most) { return x < least ? least : smaller(x, most); }

/// Max rows that are copied together, and max rows of a product of 16-bit operands in place.
constexpr i64 max_copied = 512, max_native = 4096;

In at(In x, i64 elements) { return {x.as<char>() + elements * size_of(x.type), x.type}; }
Out at(Out y, i64 elements) { return {y.as<char>() + elements * size_of(y.type), y.type}; }

/// The sizes of one call, the rows of each expert, and a thread's share of scratch.
struct Grouped {
    const GroupedMatmul& s;
    In first, second;  ///< x and w, or x and dy
    Out result;        ///< y or dw
    Products by;
    bool gradient;

    /// oneDNN makes a kernel for each M, so M is padded with zero rows to 16, 32 or a multiple of 64.
    i64 unit() const { return by == Products::native && has_native(first.type) ? 64 : 1; }
    i64 padded(i64 rows) const {
        const i64 few = rows <= 16 ? 16 : 32;
        return unit() == 1 || rows > few ? rounded(rows, unit()) : few;
    }
    bool copies() const { return s.groups > 1 || unit() > 1; }
    /// Min rows of one group that are multiplied in place, as a GEMM of their own.
    i64 large() const { return within(s.k * s.n / (s.k + s.n), 1, max_copied); }
    /// Elements of a row of the second copied operand: dy, or y on the way back.
    Type other() const { return gradient ? second.type : result.type; }
    /// The product of `rows` rows: x w, or x^T dy.
    Matmul product(i64 rows, bool add) const {
        if (gradient) return {.m = s.k, .n = s.n, .k = rows, .trans_a = true, .accumulate = add};
        return {.m = rows, .n = s.n, .k = s.k, .trans_b = s.trans_b};
    }
    bool sums() const { return gradient && result.type != Type::f32; }

    // Floats of a thread's scratch: copied rows of both operands, sums of dw in f32, and what its GEMMs need.
    i64 copied_floats(i64 cols, Type type) const {
        return copies() ? rounded(max_copied * cols * size_of(type) / 4, 16) : 0;
    }
    i64 sums_floats() const { return sums() ? rounded(s.k * s.n, 16) : 0; }
    i64 product_floats() const {
        const i64 rows = s.slots > max_copied ? s.slots : max_copied;
        const Matmul p = product(rows, false);
        const Out to = gradient ? Out(static_cast<float*>(nullptr)) : result;
        return rounded(matmul_rows_floats(by, p, first, second, to), 16);
    }
    i64 floats() const {
        return copied_floats(s.k, first.type) + copied_floats(s.n, other()) + sums_floats() + product_floats();
    }
    /// Floats of the list of rows.
    i64 list_floats() const { return rounded(s.experts * s.groups * static_cast<i64>(sizeof(ExpertRows)) / 4, 16); }
};

/// Lists the rows of each expert in all groups, [experts, groups]. Returns how many rows count.
i64 list_rows(const GroupedMatmul& s, const std::int32_t* counts, ExpertRows* list) {
    i64 total = 0;
    for (i64 e = 0; e < s.experts; ++e) {
        for (i64 g = 0; g < s.groups; ++g) {
            const i64 left = s.sorted ? s.slots - total : s.slots;
            const ExpertRows rows{s.sorted ? total : (g * s.experts + e) * s.slots,
                                  within(counts[g * s.experts + e], 0, left)};
            list[e * s.groups + g] = rows;
            total += rows.count;
        }
    }
    return total;
}

i64 count_rows(const ExpertRows* groups, i64 n) {
    i64 rows = 0;
    for (i64 g = 0; g < n; ++g) rows += groups[g].count;
    return rows;
}

/// Calls f(pieces, number of pieces, rows) for rows begin .. end-1 of an expert: a large piece alone, or small ones of
/// max_copied rows or fewer.
template <class F>
void for_batches(const Grouped& call, const ExpertRows* groups, i64 begin, i64 end, F f) {
    ExpertRows pieces[max_copied];
    i64 count = 0, rows = 0, position = 0;
    const i64 unit = call.unit(), large = call.large(), step = unit > 1 ? max_native : call.s.slots;
    const auto flush = [&] {
        if (rows > 0) f(pieces, count, rows);
        count = rows = 0;
    };
    for (i64 g = 0; g < call.s.groups && position < end; ++g) {
        const i64 all = groups[g].count, from = within(begin - position, 0, all);
        ExpertRows left{groups[g].first + from, within(end - position, 0, all) - from};
        position += all;
        const i64 whole = left.count >= large ? left.count / unit * unit : 0;
        for (i64 done = 0; done < whole; done += step) {
            const ExpertRows piece{left.first + done, smaller(step, whole - done)};
            f(&piece, 1, piece.count);
        }
        left = {left.first + whole, left.count - whole};
        while (left.count > 0) {
            const i64 taken = smaller(left.count, max_copied - rows);
            pieces[count++] = {left.first, taken};
            rows += taken;
            left = {left.first + taken, left.count - taken};
            if (rows == max_copied) flush();
        }
    }
    flush();
}

/// Copies the pieces' rows of `cols` elements together, and zeros after them up to `size` rows.
In gathered(In x, i64 cols, const ExpertRows* pieces, i64 count, i64 rows, i64 size, float* to) {
    const i64 bytes = cols * size_of(x.type);
    char* next = reinterpret_cast<char*>(to);
    for (i64 i = 0; i < count; ++i) {
        std::memcpy(next, x.as<char>() + pieces[i].first * bytes, static_cast<size_t>(pieces[i].count * bytes));
        next += pieces[i].count * bytes;
    }
    std::memset(next, 0, static_cast<size_t>((size - rows) * bytes));
    return {to, x.type};
}

void zero_rows(Out y, i64 first, i64 count, i64 cols) {
    if (count > 0) std::memset(at(y, first * cols).data, 0, static_cast<size_t>(count * cols * size_of(y.type)));
}

/// The part's share of the rows that do not count: y = 0.
void clear_rest(const Grouped& call, const ExpertRows* list, i64 total, int parts, int part) {
    const GroupedMatmul& s = call.s;
    if (s.sorted) {
        const i64 rest = s.slots - total, begin = cut(rest, parts, part, 1), end = cut(rest, parts, part + 1, 1);
        return zero_rows(call.result, total + begin, end - begin, s.n);
    }
    const i64 slabs = s.experts * s.groups, end = cut(slabs, parts, part + 1, 1);
    for (i64 i = cut(slabs, parts, part, 1); i < end; ++i)
        zero_rows(call.result, list[i].first + list[i].count, s.slots - list[i].count, s.n);
}

/// Rows begin .. end-1 of those that count, experts in order, on this thread.
void run_rows(const Grouped& call, const ExpertRows* list, i64 begin, i64 end, float* scratch) {
    const GroupedMatmul& s = call.s;
    float* const copied_x = scratch;
    float* const copied_y = copied_x + call.copied_floats(s.k, call.first.type);
    float* const packed = copied_y + call.copied_floats(s.n, call.other());
    i64 before = 0;
    for (i64 e = 0; e < s.experts && before < end; ++e) {
        const ExpertRows* const groups = list + e * s.groups;
        const In w = at(call.second, e * s.k * s.n);
        for_batches(call, groups, begin - before, end - before, [&](const ExpertRows* pieces, i64 count, i64 rows) {
            const i64 size = call.padded(rows);
            const Matmul p = call.product(size, false);
            if (count == 1 && size == rows) {
                const i64 first = pieces[0].first;
                return matmul_rows(call.by, p, at(call.first, first * s.k), w, at(call.result, first * s.n), 0, rows,
                                   packed);
            }
            const In x = gathered(call.first, s.k, pieces, count, rows, size, copied_x);
            matmul_rows(call.by, p, x, w, {copied_y, call.result.type}, 0, size, packed);
            const i64 bytes = s.n * size_of(call.result.type);
            const char* next = reinterpret_cast<const char*>(copied_y);
            for (i64 i = 0; i < count; ++i) {
                const i64 moved = pieces[i].count * bytes;
                std::memcpy(call.result.as<char>() + pieces[i].first * bytes, next, static_cast<size_t>(moved));
                next += moved;
            }
        });
        before += count_rows(groups, s.groups);
    }
}

/// Rounds n sums to elements `first`.. of dw, or adds them.
void put_sums(Out dw, i64 first, i64 n, float* sums, bool add) {
    float old[tile];
    for (i64 i = 0; i < n; i += tile) {
        const i64 size = smaller(tile, n - i);
        float* const x = sums + i;
        if (add)
            map(
                x, size, [](Vec u, Vec v) { return u + v; }, x, fetch(dw, first + i, size, old));
        flush(dw, first + i, size, x);
    }
}

/// Rows m_begin .. m_end-1 of dw[e], on this thread.
void run_dw(const Grouped& call, const ExpertRows* groups, i64 e, i64 m_begin, i64 m_end, float* scratch) {
    const GroupedMatmul& s = call.s;
    float* const copied_x = scratch;
    float* const copied_dy = copied_x + call.copied_floats(s.k, call.first.type);
    float* const sums = copied_dy + call.copied_floats(s.n, call.other());
    float* const packed = sums + call.sums_floats();
    const Out dw = at(call.result, e * s.k * s.n), to = call.sums() ? Out(sums) : dw;
    bool add = s.accumulate && !call.sums();
    const i64 all = count_rows(groups, s.groups);
    for_batches(call, groups, 0, all, [&](const ExpertRows* pieces, i64 count, i64 rows) {
        const i64 size = call.padded(rows);
        const bool in_place = count == 1 && size == rows;
        const i64 first = pieces[0].first;
        const In x =
            in_place ? at(call.first, first * s.k) : gathered(call.first, s.k, pieces, count, rows, size, copied_x);
        const In dy =
            in_place ? at(call.second, first * s.n) : gathered(call.second, s.n, pieces, count, rows, size, copied_dy);
        matmul_rows(call.by, call.product(size, add), x, dy, to, m_begin, m_end, packed);
        add = true;
    });
    if (call.sums()) put_sums(dw, m_begin * s.n, (m_end - m_begin) * s.n, sums + m_begin * s.n, s.accumulate);
}

/// The work on all experts is a range: rows x k for each expert, in order. Returns the number of rows of dw[e] [k, n]
/// before `position` of that range; the expert's work begins at `before`.
i64 rows_before(i64 position, i64 before, i64 rows, i64 k) {
    constexpr i64 unit = 16;
    if (position <= before) return 0;
    return position >= before + rows * k ? k : smaller(rounded((position - before) / rows, unit), k);
}

constexpr i64 min_flops_per_thread = 1 << 20;  ///< multiply-adds that pay for a thread

void grouped_matmul(Context& c, const GroupedMatmul& s, In x, In w, const std::int32_t* counts, Out y) {
    const Grouped call{s, x, w, y, c.products(), false};
    const int parts = parts_of(c.threads(), s.rows() * s.k * s.n, min_flops_per_thread);
    const i64 floats = call.floats();
    float* const scratch = static_cast<float*>(c.scratch((call.list_floats() + parts * floats) * 4));
    auto* const list = reinterpret_cast<ExpertRows*>(scratch);
    const i64 total = list_rows(s, counts, list);
    team(parts, [&](int part) {
        clear_rest(call, list, total, parts, part);
        run_rows(call, list, cut(total, parts, part, 16), cut(total, parts, part + 1, 16),
                 scratch + call.list_floats() + part * floats);
    });
}

void grouped_matmul_dw(Context& c, const GroupedMatmul& s, In x, In dy, const std::int32_t* counts, Out dw) {
    const Grouped call{s, x, dy, dw, c.products(), true};
    const int parts = parts_of(c.threads(), s.rows() * s.k * s.n, min_flops_per_thread);
    const i64 floats = call.floats();
    float* const scratch = static_cast<float*>(c.scratch((call.list_floats() + parts * floats) * 4));
    auto* const list = reinterpret_cast<ExpertRows*>(scratch);
    const i64 work = list_rows(s, counts, list) * s.k;
    team(parts, [&](int part) {
        const i64 begin = cut(work, parts, part, 1), end = cut(work, parts, part + 1, 1);
        const i64 first = cut(s.experts, parts, part, 1), last = cut(s.experts, parts, part + 1, 1);
        i64 before = 0;
        for (i64 e = 0; e < s.experts; ++e) {
            const i64 rows = count_rows(list + e * s.groups, s.groups);
            if (rows == 0) {
                if (e >= first && e < last && !s.accumulate) zero_rows(dw, e, 1, s.k * s.n);
                continue;
            }
            const i64 m = rows_before(begin, before, rows, s.k), m_end = rows_before(end, before, rows, s.k);
            if (m < m_end) run_dw(call, list + e * s.groups, e, m, m_end, scratch + call.list_floats() + part * floats);
            before += rows * s.k;
        }
    });
}

}  // namespace

void add_grouped_matmul(Kernels& k) {
    k.grouped_matmul = grouped_matmul;
    k.grouped_matmul_dw = grouped_matmul_dw;
}

}  // namespace orrery::kernels::cpu::ORRERY_ISA
