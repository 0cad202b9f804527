// Indices along one dim: gather, scatter_add, top_k, running sums, iota and one_hot.
#include "kernels/cpu/picks.h"
#include "kernels/cpu/ranks.h"

namespace orrery::kernels::cpu::ORRERY_ISA {

namespace {

template <class W>
void pick_elements(Context& c, const Picks& s, const W* x, const std::int32_t* ids, W* y) {
    const i64 inner = s.x.inner, size = s.x.size;
    parallel(c.threads(), s.x.outer * s.picks, 1 + grain / (inner + 1), 1, [=](i64 begin, i64 end) {
        for (i64 pick = begin; pick < end; ++pick) {
            const W* slab = x + pick / s.picks * size * inner;
            for (i64 i = 0; i < inner; ++i) {
                const i64 at = ids[pick * inner + i] - s.start;
                y[pick * inner + i] = at >= 0 && at < size ? slab[at * inner + i] : W{0};
            }
        }
    });
}

/// Copies a row of `bytes` bytes for each id.
void pick_rows(Context& c, const Picks& s, const char* x, const std::int32_t* ids, char* y, i64 bytes) {
    parallel(c.threads(), s.x.outer * s.picks, 1 + 4 * grain / (bytes + 1), 1, [=](i64 begin, i64 end) {
        for (i64 pick = begin; pick < end; ++pick) {
            const i64 at = ids[pick] - s.start;
            if (at >= 0 && at < s.x.size) {
                __builtin_memcpy(y + pick * bytes, x + (pick / s.picks * s.x.size + at) * bytes,
                                 static_cast<size_t>(bytes));
            } else {
                __builtin_memset(y + pick * bytes, 0, static_cast<size_t>(bytes));
            }
        }
    });
}

void gather(Context& c, const Picks& s, In x, const std::int32_t* ids, Out y) {
    if (s.rows) return pick_rows(c, s, x.as<char>(), ids, y.as<char>(), s.x.inner * size_of(x.type));
    switch (size_of(x.type)) {
        case 1: return pick_elements(c, s, x.as<std::uint8_t>(), ids, y.as<std::uint8_t>());
        case 2: return pick_elements(c, s, x.as<std::uint16_t>(), ids, y.as<std::uint16_t>());
        case 4: return pick_elements(c, s, x.as<std::uint32_t>(), ids, y.as<std::uint32_t>());
        default: return pick_elements(c, s, x.as<std::uint64_t>(), ids, y.as<std::uint64_t>());
    }
}

/// 16-bit sums are made in f32 scratch and rounded once.
void scatter_add(Context& c, const Picks& s, In x, const std::int32_t* ids, Out y) {
    const i64 n = s.x.outer * s.x.size * s.x.inner;
    const bool wide = y.type == Type::f32;
    auto* sums = static_cast<float*>(c.scratch(wide ? 0 : n * 4));
    if (wide) return add_picks(c, s, x, ids, y.as<float>());
    const auto each_tile = [&](auto run) {
        parallel(c.threads(), n, grain, 64, [&](i64 begin, i64 end) {
            for (i64 at = begin; at < end; at += tile) run(at, end - at < tile ? end - at : tile);
        });
    };
    if (s.accumulate) each_tile([&](i64 at, i64 size) { fetch(y, at, size, sums + at); });
    add_picks(c, s, x, ids, sums);
    each_tile([&](i64 at, i64 size) { flush(y, at, size, sums + at); });
}

/// The k largest keys offered so far.
struct Best {
    std::uint64_t* heap;
    i64 k, count = 0;
    float least = 0;  ///< the smallest of k elements: later ones must be larger, or NaN

    void add(float x, i64 index) {
        if (count < k) {
            heap[count++] = rank_key(x, index);
            if (count < k) return;
            for (i64 r = k / 2; r-- > 0;) sift(heap, r, k);
        } else {
            const std::uint64_t key = rank_key(x, index);
            if (key < heap[0]) return;
            heap[0] = key;
            sift(heap, 0, k);
        }
        const auto order = static_cast<std::uint32_t>(heap[0] >> 32);
        least = std::bit_cast<float>((order >> 31) != 0 ? order & 0x7fffffffu : ~order);
    }
    /// Offers elements index .. index+n-1, most of which are usually below `least`.
    void offer(const float* x, i64 n, i64 index) {
        constexpr i64 step = 64;
        for (i64 i = 0; i < n; i += step) {
            const i64 size = n - i < step ? n - i : step;
            if (count == k && row_max(x + i, size, x[i]) <= least) continue;
            for (i64 e = i; e < i + size; ++e) {
                if (count < k || !(x[e] <= least)) add(x[e], index + e);
            }
        }
    }
    void sort() {
        for (i64 left = k - 1; left > 0; --left) {  // moves the smallest to the end
            const std::uint64_t smallest = heap[0];
            heap[0] = heap[left];
            heap[left] = smallest;
            sift(heap, 0, left);
        }
    }
};

/// The largest keys of one lane, `step` elements apart from `at` on, in descending order.
void largest(In x, i64 at, i64 step, i64 n, i64 k, std::uint64_t* keys) {
    Best best{keys, k};
    float buffer[tile];
    for (i64 j = 0; j < n; j += tile) {
        const i64 size = n - j < tile ? n - j : tile;
        const float* v = buffer;
        if (step == 1) {
            v = fetch(x, at + j, size, buffer);
        } else {
            for (i64 e = 0; e < size; ++e) buffer[e] = *fetch(x, at + (j + e) * step, 1, buffer + e);
        }
        best.offer(v, size, j);
    }
    best.sort();
}

template <class W>
void take(const Along& s, i64 k, i64 lane, const W* x, const std::uint64_t* keys, W* values, std::int32_t* ids) {
    const i64 o = lane / s.inner, i = lane % s.inner;
    for (i64 j = 0; j < k; ++j) {
        const i64 at = (o * k + j) * s.inner + i, index = index_of(keys[j]);
        ids[at] = static_cast<std::int32_t>(index);
        values[at] = x[(o * s.size + index) * s.inner + i];
    }
}

void top_k(Context& c, const Along& s, i64 k, In x, Out values, std::int32_t* ids) {
    const i64 lanes = s.outer * s.inner;
    const int parts = parts_of(c.threads(), lanes, 1 + grain / (s.size + 1));
    auto* keys = static_cast<std::uint64_t*>(c.scratch(parts * k * 8));
    team(parts, [&](int part) {
        std::uint64_t* own = keys + part * k;
        const i64 end = cut(lanes, parts, part + 1, 1);
        for (i64 lane = cut(lanes, parts, part, 1); lane < end; ++lane) {
            largest(x, lane / s.inner * s.size * s.inner + lane % s.inner, s.inner, s.size, k, own);
            if (size_of(x.type) == 4)
                take(s, k, lane, x.as<std::uint32_t>(), own, values.as<std::uint32_t>(), ids);
            else
                take(s, k, lane, x.as<std::uint16_t>(), own, values.as<std::uint16_t>(), ids);
        }
    });
}

/// y = the running sums of x, starting with `sum`, which is updated; x may be y.
ORRERY_INLINE void add_up(const float* x, float* y, i64 n, bool reverse, bool exclusive, double& sum) {
    for (i64 e = 0; e < n; ++e) {
        const i64 at = reverse ? n - 1 - e : e;
        const double before = sum;
        sum += x[at];
        y[at] = static_cast<float>(exclusive ? before : sum);
    }
}

void scan_row(In x, Out y, i64 at, i64 n, bool reverse, bool exclusive) {
    double sum = 0;
    float from[tile], to[tile];
    for (i64 j = 0; j < n; j += tile) {
        const i64 size = n - j < tile ? n - j : tile, begin = at + (reverse ? n - j - size : j);
        float* out = target(y, begin, to);
        add_up(fetch(x, begin, size, from), out, size, reverse, exclusive, sum);
        flush(y, begin, size, out);
    }
}

constexpr i64 scan_columns = 128;

/// Running sums of columns begin .. begin+n-1 of one [size, inner].
void scan_lanes(In x, Out y, const Along& s, i64 at, i64 n, bool reverse, bool exclusive) {
    double sums[scan_columns] = {};
    float from[scan_columns], to[scan_columns];
    for (i64 j = 0; j < s.size; ++j) {
        const i64 begin = at + (reverse ? s.size - 1 - j : j) * s.inner;
        const float* v = fetch(x, begin, n, from);
        float* out = target(y, begin, to);
        for (i64 e = 0; e < n; ++e) {
            const double before = sums[e];
            sums[e] += v[e];
            out[e] = static_cast<float>(exclusive ? before : sums[e]);
        }
        flush(y, begin, n, out);
    }
}

void cumsum(Context& c, const Along& s, bool reverse, bool exclusive, In x, Out y) {
    const i64 width = s.inner < scan_columns ? s.inner : scan_columns, pieces = (s.inner + width - 1) / width;
    parallel(c.threads(), s.outer * pieces, 1 + grain / (s.size * width + 1), 1, [&](i64 begin, i64 end) {
        for (i64 piece = begin; piece < end; ++piece) {
            const i64 at = piece / pieces * s.size * s.inner, first = piece % pieces * width;
            if (s.inner == 1) {
                scan_row(x, y, at, s.size, reverse, exclusive);
            } else {
                const i64 left = s.inner - first;
                scan_lanes(x, y, s, at + first, left < width ? left : width, reverse, exclusive);
            }
        }
    });
}

void iota(Context& c, const Along& s, i64 start, Out y) {
    parallel(c.threads(), s.outer * s.size, 1 + grain / (s.inner + 1), 1, [&](i64 begin, i64 end) {
        float buffer[tile];
        for (i64 row = begin; row < end; ++row) {
            const i64 index = start + row % s.size;
            for (i64 i = 0; i < s.inner; i += tile) {
                const i64 at = row * s.inner + i, n = s.inner - i < tile ? s.inner - i : tile;
                if (y.type == Type::i32) {
                    for (i64 e = 0; e < n; ++e) y.as<std::int32_t>()[at + e] = static_cast<std::int32_t>(index);
                    continue;
                }
                float* to = target(y, at, buffer);
                map(to, n, [v = Vec(static_cast<float>(index))]() { return v; });
                flush(y, at, n, to);
            }
        }
    });
}

template <class W>
void set_ones(Context& c, const std::int32_t* ids, i64 n, i64 start, i64 cols, W* y, W one) {
    parallel(c.threads(), n, 1 + grain / (cols + 1), 1, [=](i64 begin, i64 end) {
        __builtin_memset(y + begin * cols, 0, static_cast<size_t>((end - begin) * cols) * sizeof(W));
        for (i64 i = begin; i < end; ++i) {
            const i64 column = ids[i] - start;
            if (column >= 0 && column < cols) y[i * cols + column] = one;
        }
    });
}

void one_hot(Context& c, const std::int32_t* ids, i64 n, i64 start, i64 cols, Out y) {
    switch (y.type) {
        case Type::i32: return set_ones(c, ids, n, start, cols, y.as<std::int32_t>(), std::int32_t{1});
        case Type::bf16: return set_ones(c, ids, n, start, cols, y.as<bf16>(), to_bf16(1));
        case Type::f16: return set_ones(c, ids, n, start, cols, y.as<f16>(), to_f16(1));
        default: return set_ones(c, ids, n, start, cols, y.as<float>(), 1.0f);
    }
}

}  // namespace

void add_index(Kernels& k) {
    k.gather = gather;
    k.scatter_add = scatter_add;
    k.top_k = top_k;
    k.cumsum = cumsum;
    k.iota = iota;
    k.one_hot = one_hot;
}

}  // namespace orrery::kernels::cpu::ORRERY_ISA
