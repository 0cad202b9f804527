// Tokens to the slots of experts and back: assign_slots, dispatch, combine and slot_dots.
#pragma once

#include "kernels/cuda/index.h"

namespace orrery::kernels::ORRERY_BLOCKS {

namespace {

/// The sum of `value` over the threads before this one, and over all threads in `total`. partial [threads] is shared
/// memory. Every thread must call it.
ORRERY_DEVICE std::uint64_t sum_before(const Block& b, std::uint64_t value, std::uint64_t* partial,
                                       std::uint64_t& total) {
    b.sync();
    partial[b.thread()] = value;
    for (int step = 1; step < b.threads(); step *= 2) {
        b.sync();
        const std::uint64_t before = b.thread() >= step ? partial[b.thread() - step] : 0;
        b.sync();
        partial[b.thread()] += before;
    }
    b.sync();
    total = partial[b.threads() - 1];
    return partial[b.thread()] - value;
}

/// A block for each expert of a group: it counts the group's ids, and gives places to the choices of its expert.
/// Without weights they are the first ones. With weights the block lists the keys of its choices in scratch memory,
/// finds the smallest key with a place bit by bit, and gives places in the order of the list.
struct AssignSlots {
    static constexpr int threads = 256;
    static constexpr bool barriers = true;
    static constexpr int each = 8;  ///< adjacent choices of a thread at once
    Slots s;
    const std::int32_t* ids;
    AnyIn weights;
    std::int32_t *slots, *load;
    std::uint32_t* keys;   ///< [groups, tokens * choices]; null without weights
    std::int32_t* listed;  ///< the choice of each key

    /// Calls f(choice, its rank among the expert's choices) for each choice of the expert; returns their number.
    template <class F>
    ORRERY_DEVICE i64 visit(const Block& b, const std::int32_t* own_ids, i64 e, std::uint64_t* partial, F f) const {
        i64 carried = 0;
        for (i64 first = 0; first < s.chosen(); first += i64{each} * b.threads()) {
            const i64 begin = first + i64{each} * b.thread();
            unsigned mask = 0;
            std::uint64_t count = 0, total = 0;
            for (int j = 0; j < each; ++j) {
                if (begin + j >= s.chosen() || own_ids[begin + j] != e) continue;
                mask |= 1u << j;
                ++count;
            }
            i64 place = carried + static_cast<i64>(sum_before(b, count, partial, total));
            for (int j = 0; j < each; ++j) {
                if ((mask >> j & 1u) != 0) f(begin + j, place++);
            }
            carried += static_cast<i64>(total);
        }
        return carried;
    }

    /// Choices of experts before e.
    ORRERY_DEVICE i64 before(const Block& b, const std::int32_t* own_ids, i64 e, std::uint64_t* partial) const {
        std::uint64_t count = 0, total = 0;
        for (i64 c = b.thread(); c < s.chosen(); c += b.threads()) count += own_ids[c] >= 0 && own_ids[c] < e ? 1 : 0;
        sum_before(b, count, partial, total);
        return static_cast<i64>(total);
    }

    /// The slots-th largest of n keys.
    ORRERY_DEVICE std::uint32_t threshold(const Block& b, const std::uint32_t* own, i64 n,
                                          std::uint64_t* partial) const {
        std::uint32_t least = 0;
        for (int bit = 31; bit >= 0; --bit) {
            const std::uint32_t trial = least | 1u << bit;
            std::uint64_t count = 0, total = 0;
            for (i64 j = b.thread(); j < n; j += b.threads()) count += own[j] >= trial ? 1 : 0;
            sum_before(b, count, partial, total);
            if (static_cast<i64>(total) >= s.slots) least = trial;
        }
        return least;
    }

    /// Places for n listed choices, more than there are slots: those above the threshold, and the first of those at it.
    ORRERY_DEVICE void place(const Block& b, i64 from, i64 n, i64 e, std::int32_t* to, std::uint64_t* partial) const {
        const std::uint32_t *own = keys + from, least = threshold(b, own, n, partial);
        std::uint64_t above = 0, total = 0;
        for (i64 j = b.thread(); j < n; j += b.threads()) above += own[j] > least ? 1 : 0;
        sum_before(b, above, partial, total);
        const i64 equal = s.slots - static_cast<i64>(total);  // places for keys at the threshold
        i64 carried_above = 0, carried_equal = 0;
        for (i64 first = 0; first < n; first += b.threads()) {
            const i64 j = first + b.thread();
            const std::uint64_t is_above = j < n && own[j] > least ? 1 : 0, is_equal = j < n && own[j] == least ? 1 : 0;
            const std::uint64_t both = sum_before(b, is_above << 32 | is_equal, partial, total);
            const i64 higher = carried_above + static_cast<i64>(both >> 32);
            const i64 same = carried_equal + static_cast<i64>(both & 0xffffffffu);
            const bool kept = is_above != 0 || (is_equal != 0 && same < equal);
            const i64 at = e * s.slots + higher + (same < equal ? same : equal);
            if (j < n) to[listed[from + j]] = kept ? static_cast<std::int32_t>(at) : -1;
            carried_above += static_cast<i64>(total >> 32);
            carried_equal += static_cast<i64>(total & 0xffffffffu);
        }
    }

    ORRERY_DEVICE void operator()(const Block& b) const {
        auto* const partial = b.shared<std::uint64_t>();
        const i64 group = b.index() / s.experts, e = b.index() % s.experts, n = s.chosen();
        const std::int32_t* own_ids = ids + group * n;
        std::int32_t* to = slots + group * n;
        for (i64 c = b.thread(); e == 0 && c < n; c += b.threads()) {
            if (own_ids[c] < 0 || own_ids[c] >= s.experts) to[c] = -1;
        }
        i64 from = 0;
        if (keys != nullptr) from = group * n + before(b, own_ids, e, partial);
        const i64 count = visit(b, own_ids, e, partial, [&](i64 c, i64 place) {
            to[c] = place < s.slots ? static_cast<std::int32_t>(e * s.slots + place) : -1;
            if (keys == nullptr) return;
            keys[from + place] = static_cast<std::uint32_t>(rank_key(weights.at(group * n + c), 0) >> 32);
            listed[from + place] = static_cast<std::int32_t>(c);
        });
        if (b.thread() == 0) load[b.index()] = static_cast<std::int32_t>(count);
        if (keys == nullptr || count <= s.slots) return;
        b.sync();
        place(b, from, count, e, to, partial);
    }
};

void assign_slots(kernels::Context& context, const Slots& s, const std::int32_t* ids, In weights, std::int32_t* slots,
                  std::int32_t* load) {
    Call& call = call_of(context);
    const bool ranks = call.rehearsal || weights.data != nullptr;  // a rehearsal sees no addresses
    auto* keys = ranks ? call.take_array<std::uint32_t>(s.groups * s.chosen()) : nullptr;
    auto* listed = ranks ? call.take_array<std::int32_t>(s.groups * s.chosen()) : nullptr;
    const i64 wanted = power_above(divide_up(s.chosen(), AssignSlots::each));
    const i64 threads = wanted < AssignSlots::threads ? wanted : AssignSlots::threads;
    launch(call, s.groups * s.experts, AssignSlots{s, ids, AnyIn(weights, false), slots, load, keys, listed},
           threads * 8, static_cast<int>(threads));
}

/// Leaves in holders [groups, experts * slots], initially 0, one of the choices of each slot, plus 1.
struct HoldSlots {
    static constexpr int threads = 256;
    static constexpr bool barriers = false;
    Slots s;
    const std::int32_t* slots;
    std::int32_t* holders;
    ORRERY_DEVICE void operator()(const Block& b) const {
        const i64 n = s.groups * s.chosen();
        for (i64 c = b.index() * threads + b.thread(); c < n; c += b.blocks() * threads) {
            const i64 group = divided(c, s.chosen()), at = s.local(slots[c]);
            if (at >= 0) holders[group * s.held() + at] = static_cast<std::int32_t>(c - group * s.chosen()) + 1;
        }
    }
};

/// Sets repeats [groups, experts * slots], initially 0, to 1 for slots that more than one choice has.
struct FindRepeats {
    static constexpr int threads = 256;
    static constexpr bool barriers = false;
    Slots s;
    const std::int32_t *slots, *holders;
    std::int32_t* repeats;
    ORRERY_DEVICE void operator()(const Block& b) const {
        const i64 n = s.groups * s.chosen();
        for (i64 c = b.index() * threads + b.thread(); c < n; c += b.blocks() * threads) {
            const i64 group = divided(c, s.chosen()), at = s.local(slots[c]);
            if (at < 0) continue;
            if (holders[group * s.held() + at] != c - group * s.chosen() + 1) repeats[group * s.held() + at] = 1;
        }
    }
};

/// Rows of y, a thread for eight columns. A slot that several choices have, which assign_slots never makes, is summed
/// by reading all slots of the group in order.
struct DispatchRows {
    static constexpr int threads = 256;
    static constexpr bool barriers = false;
    Slots s;
    AnyIn x;
    const std::int32_t* slots;
    AnyIn weights;
    const std::int32_t *holders, *repeats;
    AnyOut y;

    ORRERY_DEVICE void add(i64 group, i64 choice, i64 col, float (&sum)[run]) const {
        float v[run];
        const i64 row = group * s.tokens + divided(choice, s.choices);
        x.load(row * s.cols + col, s.cols - col, v);
        const float by = weights.absent() ? 1.0f : weights.at(group * s.chosen() + choice);
#pragma unroll
        for (int l = 0; l < run; ++l) sum[l] += by * v[l];
    }
    ORRERY_DEVICE void operator()(const Block& b) const {
        const i64 runs = (s.cols + run - 1) / run, n = s.groups * s.held() * runs;
        for (i64 e = b.index() * threads + b.thread(); e < n; e += b.blocks() * threads) {
            const i64 slot = divided(e, runs), col = (e - slot * runs) * run, group = divided(slot, s.held());
            float sum[run] = {};
            if (repeats[slot] != 0) {
                const i64 own = slot - group * s.held();
                for (i64 c = 0; c < s.chosen(); ++c) {
                    if (s.local(slots[group * s.chosen() + c]) == own) add(group, c, col, sum);
                }
            } else if (holders[slot] != 0) {
                add(group, holders[slot] - 1, col, sum);
            }
            y.store(slot * s.cols + col, s.cols - col, sum);
        }
    }
};

void dispatch(kernels::Context& context, const Slots& s, In x, const std::int32_t* slots, In weights, Out y) {
    Call& call = call_of(context);
    const i64 all = s.groups * s.held(), n = s.groups * s.chosen();
    auto* holders = call.take_array<std::int32_t>(2 * all);
    std::int32_t* repeats = holders == nullptr ? nullptr : holders + all;
    fill(call, holders, 2 * all * 4, Words{});
    launch(call, blocks_for(call, n, HoldSlots::threads), HoldSlots{s, slots, holders});
    launch(call, blocks_for(call, n, FindRepeats::threads), FindRepeats{s, slots, holders, repeats});
    launch(call, blocks_for(call, all * divide_up(s.cols, run), DispatchRows::threads),
           DispatchRows{s, AnyIn(x, aligned_rows(x.data, x.type, s.cols)), slots, AnyIn(weights, false), holders,
                        repeats, AnyOut(y, aligned_rows(y.data, y.type, s.cols))});
}

/// Rows of x, a thread for eight columns.
struct CombineRows {
    static constexpr int threads = 256;
    static constexpr bool barriers = false;
    Slots s;
    AnyIn y;
    const std::int32_t* slots;
    AnyIn weights;
    AnyOut x;
    ORRERY_DEVICE void operator()(const Block& b) const {
        const i64 runs = (s.cols + run - 1) / run, n = s.groups * s.tokens * runs;
        for (i64 e = b.index() * threads + b.thread(); e < n; e += b.blocks() * threads) {
            const i64 row = divided(e, runs), col = (e - row * runs) * run, group = divided(row, s.tokens);
            float sum[run] = {};
            for (i64 c = row * s.choices; c < (row + 1) * s.choices; ++c) {
                const i64 slot = s.local(slots[c]);
                if (slot < 0) continue;
                float v[run];
                y.load((group * s.held() + slot) * s.cols + col, s.cols - col, v);
                const float by = weights.absent() ? 1.0f : weights.at(c);
#pragma unroll
                for (int l = 0; l < run; ++l) sum[l] += by * v[l];
            }
            x.store(row * s.cols + col, s.cols - col, sum);
        }
    }
};

void combine(kernels::Context& context, const Slots& s, In y, const std::int32_t* slots, In weights, Out x) {
    Call& call = call_of(context);
    launch(call, blocks_for(call, s.groups * s.tokens * divide_up(s.cols, run), CombineRows::threads),
           CombineRows{s, AnyIn(y, aligned_rows(y.data, y.type, s.cols)), slots, AnyIn(weights, false),
                       AnyOut(x, aligned_rows(x.data, x.type, s.cols))});
}

/// Inner products, 32 threads for each choice.
struct SlotDots {
    static constexpr int threads = 128;
    static constexpr bool barriers = true;
    Slots s;
    AnyIn y, x;
    const std::int32_t* slots;
    float* dots;
    ORRERY_DEVICE void operator()(const Block& b) const {
        const i64 n = s.groups * s.chosen(), at_once = threads / 32;
        // All threads of a warp have one choice, so that they call b.sum equally often.
        for (i64 c = b.index() * at_once + b.thread() / 32; c < n; c += b.blocks() * at_once) {
            const i64 slot = s.local(slots[c]), row = divided(c, s.choices), group = divided(row, s.tokens);
            float sum = 0;
            for (i64 col = b.thread() % 32 * run; slot >= 0 && col < s.cols; col += 32 * run) {
                float u[run], v[run];
                y.load((group * s.held() + slot) * s.cols + col, s.cols - col, u);
                x.load(row * s.cols + col, s.cols - col, v);
#pragma unroll
                for (int l = 0; l < run; ++l) sum += u[l] * v[l];
            }
            sum = b.sum(sum, 32);
            if (b.thread() % 32 == 0) dots[c] = sum;
        }
    }
};

void slot_dots(kernels::Context& context, const Slots& s, In y, In x, const std::int32_t* slots, Out dots) {
    Call& call = call_of(context);
    launch(call, blocks_for(call, s.groups * s.chosen(), SlotDots::threads / 32),
           SlotDots{s, AnyIn(y, aligned_rows(y.data, y.type, s.cols)), AnyIn(x, aligned_rows(x.data, x.type, s.cols)),
                    slots, dots.as<float>()});
}

}  // namespace

void add_dispatch(Kernels& k) {
    k.assign_slots = assign_slots;
    k.dispatch = dispatch;
    k.combine = combine;
    k.slot_dots = slot_dots;
}

}  // namespace orrery::kernels::ORRERY_BLOCKS
