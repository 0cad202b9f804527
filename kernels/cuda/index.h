// Indices along one dim: gather, scatter_add, top_k, running sums, iota and one_hot.
#pragma once

#include <bit>

#include "kernels/cuda/call.h"
#include "kernels/cuda/moves.h"
#include "kernels/cuda/run.h"

namespace orrery::kernels::ORRERY_BLOCKS {

namespace {

/// Divides in 32 bits if both operands fit: several times faster.
ORRERY_DEVICE i64 divided(i64 a, i64 by) {
    if (((a | by) >> 32) != 0) return a / by;
    return static_cast<i64>(static_cast<std::uint32_t>(a) / static_cast<std::uint32_t>(by));
}
ORRERY_DEVICE i64 remainder_of(i64 a, i64 by) { return a - divided(a, by) * by; }

/// y = elements of x; a row of `inner` words for each id, or a word for each id.
template <class W>
struct PickWords {
    static constexpr int threads = 256;
    static constexpr bool barriers = false;
    const W* x;
    const std::int32_t* ids;
    W* y;
    i64 size, picks, inner, start, n;
    bool rows;
    ORRERY_DEVICE void operator()(const Block& b) const {
        for (i64 e = b.index() * threads + b.thread(); e < n; e += b.blocks() * threads) {
            const i64 pick = divided(e, inner), at = ids[rows ? pick : e] - start;
            y[e] = at >= 0 && at < size ? x[(divided(pick, picks) * size + at) * inner + e - pick * inner] : W{};
        }
    }
};

template <class W>
void pick_words(Call& call, const Picks& s, i64 inner, In x, const std::int32_t* ids, Out y) {
    const i64 n = s.x.outer * s.picks * inner;
    launch(call, blocks_for(call, n, PickWords<W>::threads),
           PickWords<W>{x.as<W>(), ids, y.as<W>(), s.x.size, s.picks, inner, s.start, n, s.rows});
}

void gather(kernels::Context& context, const Picks& s, In x, const std::int32_t* ids, Out y) {
    Call& call = call_of(context);
    const i64 bytes = s.x.inner * size_of(x.type);
    if (s.rows && bytes % 16 == 0 && aligned(x.data) && aligned(y.data))
        return pick_words<Words>(call, s, bytes / 16, x, ids, y);
    switch (size_of(x.type)) {
        case 1: return pick_words<std::uint8_t>(call, s, s.x.inner, x, ids, y);
        case 2: return pick_words<std::uint16_t>(call, s, s.x.inner, x, ids, y);
        case 4: return pick_words<std::uint32_t>(call, s, s.x.inner, x, ids, y);
        default: return pick_words<std::uint64_t>(call, s, s.x.inner, x, ids, y);
    }
}

/// Each thread owns some rows of one lane of sums [outer, size, inner] and walks all picks: no two threads write to the
/// same sum, and additions are in the order of the picks, for any number of stripes.
struct AddPicks {
    static constexpr int threads = 128;
    static constexpr bool barriers = false;
    Picks s;
    const std::int32_t* ids;
    AnyIn x;
    AnyIn old;  ///< the initial values; absent: zeros
    float* sums;
    i64 stripes, rows_each;
    ORRERY_DEVICE void operator()(const Block& b) const {
        const i64 inner = s.x.inner, lanes = s.x.outer * inner, at = b.index() * threads + b.thread();
        if (at >= lanes * stripes) return;
        const i64 lane = at % lanes, o = lane / inner, i = lane % inner, first = at / lanes * rows_each;
        const i64 end = first + rows_each < s.x.size ? first + rows_each : s.x.size;
        float* const to = sums + o * s.x.size * inner + i;
        for (i64 r = first; r < end; ++r) to[r * inner] = old.absent() ? 0.0f : old.at((o * s.x.size + r) * inner + i);
        for (i64 j = 0; j < s.picks; ++j) {
            const i64 pick = o * s.picks + j, row = ids[s.rows ? pick : pick * inner + i] - s.start;
            if (row >= first && row < end) to[row * inner] += x.at(pick * inner + i);
        }
    }
};

/// Number of stripes that fills the multiprocessors, of at least two rows each.
i64 stripes_of(const Call& call, const Along& s) {
    const i64 wanted = divide_up(static_cast<i64>(call.multiprocessors) * 8 * AddPicks::threads, s.outer * s.inner);
    const i64 most = divide_up(s.size, 2);
    return wanted < most ? wanted : most;
}

struct Narrow {
    static constexpr int threads = 256;
    static constexpr bool barriers = false;
    const float* x;
    AnyOut y;
    i64 n;
    ORRERY_DEVICE void operator()(const Block& b) const {
        for (i64 i = b.index() * threads + b.thread(); i < n; i += b.blocks() * threads) y.put(i, x[i]);
    }
};

void scatter_add(kernels::Context& context, const Picks& s, In x, const std::int32_t* ids, Out y) {
    Call& call = call_of(context);
    const i64 n = s.x.outer * s.x.size * s.x.inner;
    float* sums = y.type == Type::f32 ? y.as<float>() : call.take_array<float>(n);
    const i64 stripes = stripes_of(call, s.x), rows_each = divide_up(s.x.size, stripes);
    launch(call, divide_up(s.x.outer * s.x.inner * stripes, AddPicks::threads),
           AddPicks{s, ids, AnyIn(x, false), s.accumulate ? AnyIn(y, false) : AnyIn(), sums, stripes, rows_each});
    if (y.type != Type::f32) launch(call, blocks_for(call, n, Narrow::threads), Narrow{sums, AnyOut(y, false), n});
}

/// Keys in the order of top_k, larger first: NaN above all numbers, -0 as 0, equal ones by index. No key is 0.
ORRERY_DEVICE std::uint64_t rank_key(float x, i64 index) {
    auto bits = std::bit_cast<std::uint32_t>(x);
    if ((bits & 0x7fffffffu) == 0) bits = 0;
    const std::uint32_t order = x != x ? ~0u : (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
    return static_cast<std::uint64_t>(order) << 32 | (~static_cast<std::uint32_t>(index));
}

/// The largest elements of one lane, by one block. `keys` holds the best `half` so far in descending order, followed by
/// as many candidates: each thread looks for its next element above the last of the best, then all are sorted, until no
/// thread finds one.
struct Largest {
    static constexpr int threads = 256;
    static constexpr bool barriers = true;
    Along s;
    i64 k, half;  ///< half: a power of two, at least k and the threads of a block
    AnyIn x;
    AnyOut values;
    std::int32_t* ids;
    std::uint64_t* scratch;  ///< [blocks, 2 half], when shared memory is too small

    ORRERY_DEVICE void sort(const Block& b, std::uint64_t* keys) const {
        for (i64 length = 2; length <= 2 * half; length *= 2) {
            for (i64 step = length / 2; step > 0; step /= 2) {
                b.sync();
                for (i64 pair = b.thread(); pair < half; pair += b.threads()) {
                    const i64 low = pair / step * 2 * step + pair % step, high = low + step;
                    const bool descends = (low & length) == 0;
                    const std::uint64_t one = keys[low], other = keys[high];
                    if (descends ? one < other : one > other) {
                        keys[low] = other;
                        keys[high] = one;
                    }
                }
            }
        }
        b.sync();
    }

    ORRERY_DEVICE void operator()(const Block& b) const {
        std::uint64_t* keys = scratch != nullptr ? scratch + b.index() * 2 * half : b.shared<std::uint64_t>(threads);
        auto* const room = b.shared<float>();
        for (i64 lane = b.index(); lane < s.outer * s.inner; lane += b.blocks()) {
            const i64 o = lane / s.inner, i = lane % s.inner;
            for (i64 j = b.thread(); j < 2 * half; j += b.threads()) keys[j] = 0;
            b.sync();
            for (i64 next = b.thread();;) {
                const std::uint64_t least = keys[k - 1];
                std::uint64_t found = 0;
                for (; next < s.size && found == 0; next += b.threads()) {
                    const std::uint64_t key = rank_key(x.at((o * s.size + next) * s.inner + i), next);
                    if (key > least) found = key;
                }
                if (block_sum(b, found != 0 ? 1.0f : 0.0f, room) == 0) break;
                for (i64 j = half + b.thread(); j < 2 * half; j += b.threads()) keys[j] = 0;
                keys[half + b.thread()] = found;
                sort(b, keys);
            }
            for (i64 j = b.thread(); j < k; j += b.threads()) {
                const i64 index = ~static_cast<std::uint32_t>(keys[j]), at = (o * k + j) * s.inner + i;
                ids[at] = static_cast<std::int32_t>(index);
                values.put(at, x.at((o * s.size + index) * s.inner + i));
            }
            b.sync();
        }
    }
};

i64 power_above(i64 n) {
    i64 power = 32;
    while (power < n) power *= 2;
    return power;
}

void top_k(kernels::Context& context, const Along& s, i64 k, In x, Out values, std::int32_t* ids) {
    constexpr i64 most_shared = 64 * 1024, room = Largest::threads;
    Call& call = call_of(context);
    const i64 lanes = s.outer * s.inner, wanted = power_above(s.size);
    const i64 threads = wanted < Largest::threads ? wanted : Largest::threads;
    const i64 half = power_above(k) > threads ? power_above(k) : threads, bytes = 2 * half * 8;
    const bool own = bytes > most_shared;
    const i64 most = own ? blocks_for(call, lanes, 1) : i64{1} << 30, blocks = lanes < most ? lanes : most;
    auto* scratch = own ? call.take_array<std::uint64_t>(blocks * 2 * half) : nullptr;
    launch(call, blocks, Largest{s, k, half, AnyIn(x, false), AnyOut(values, false), ids, scratch},
           room + (own ? 0 : bytes), static_cast<int>(threads));
}

/// Running sums of many lanes, one a thread.
struct ScanLanes {
    static constexpr int threads = 128;
    static constexpr bool barriers = false;
    Along s;
    AnyIn x;
    AnyOut y;
    bool reverse, exclusive;
    ORRERY_DEVICE void operator()(const Block& b) const {
        const i64 lane = b.index() * threads + b.thread();
        if (lane >= s.outer * s.inner) return;
        double sum = 0;
        for (i64 j = 0; j < s.size; ++j) {
            const i64 row = lane / s.inner * s.size + (reverse ? s.size - 1 - j : j);
            const i64 at = row * s.inner + lane % s.inner;
            const double before = sum;
            sum += static_cast<double>(x.at(at));
            y.put(at, static_cast<float>(exclusive ? before : sum));
        }
    }
};

/// Running sums of a lane, by one block; as many adjacent elements at once as it has threads.
struct ScanRows {
    static constexpr int threads = 256;
    static constexpr bool barriers = true;
    Along s;
    AnyIn x;
    AnyOut y;
    bool reverse, exclusive;
    ORRERY_DEVICE void operator()(const Block& b) const {
        auto* const sums = b.shared<double>();
        for (i64 lane = b.index(); lane < s.outer * s.inner; lane += b.blocks()) {
            const i64 o = lane / s.inner, i = lane % s.inner;
            double carried = 0;
            for (i64 first = 0; first < s.size; first += b.threads()) {
                const i64 j = first + b.thread(), row = o * s.size + (reverse ? s.size - 1 - j : j);
                const double own = j < s.size ? static_cast<double>(x.at(row * s.inner + i)) : 0.0;
                sums[b.thread()] = own;
                for (int step = 1; step < b.threads(); step *= 2) {
                    b.sync();
                    const double before = b.thread() >= step ? sums[b.thread() - step] : 0.0;
                    b.sync();
                    sums[b.thread()] += before;
                }
                b.sync();
                const double before = b.thread() > 0 ? sums[b.thread() - 1] : 0.0;
                const double sum = carried + (exclusive ? before : sums[b.thread()]);
                if (j < s.size) y.put(row * s.inner + i, static_cast<float>(sum));
                carried += sums[b.threads() - 1];
                b.sync();
            }
        }
    }
};

void cumsum(kernels::Context& context, const Along& s, bool reverse, bool exclusive, In x, Out y) {
    Call& call = call_of(context);
    const i64 lanes = s.outer * s.inner;
    // Adjacent threads read adjacent elements only if lanes are adjacent.
    if (s.inner >= 32 || s.size <= 32) {
        const ScanLanes body{s, AnyIn(x, false), AnyOut(y, false), reverse, exclusive};
        return launch(call, divide_up(lanes, ScanLanes::threads), body);
    }
    const i64 wanted = power_above(s.size), threads = wanted < ScanRows::threads ? wanted : ScanRows::threads;
    launch(call, blocks_for(call, lanes, 1), ScanRows{s, AnyIn(x, false), AnyOut(y, false), reverse, exclusive},
           threads * 8, static_cast<int>(threads));
}

struct Count {
    static constexpr int threads = 256;
    static constexpr bool barriers = false;
    Along s;
    i64 start, n;
    AnyOut y;
    ORRERY_DEVICE void operator()(const Block& b) const {
        for (i64 e = b.index() * threads + b.thread(); e < n; e += b.blocks() * threads)
            y.put(e, start + remainder_of(divided(e, s.inner), s.size));
    }
};

void iota(kernels::Context& context, const Along& s, i64 start, Out y) {
    Call& call = call_of(context);
    const i64 n = s.outer * s.size * s.inner;
    launch(call, blocks_for(call, n, Count::threads), Count{s, start, n, AnyOut(y, false)});
}

struct Ones {
    static constexpr int threads = 256;
    static constexpr bool barriers = false;
    const std::int32_t* ids;
    i64 n, start, cols;
    AnyOut y;
    ORRERY_DEVICE void operator()(const Block& b) const {
        for (i64 e = b.index() * threads + b.thread(); e < n * cols; e += b.blocks() * threads) {
            const i64 row = divided(e, cols);
            y.put(e, ids[row] - start == e - row * cols ? 1.0f : 0.0f);
        }
    }
};

void one_hot(kernels::Context& context, const std::int32_t* ids, i64 n, i64 start, i64 cols, Out y) {
    Call& call = call_of(context);
    launch(call, blocks_for(call, n * cols, Ones::threads), Ones{ids, n, start, cols, AnyOut(y, false)});
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

}  // namespace orrery::kernels::ORRERY_BLOCKS
