// Tokens to the slots of experts and back: assign_slots, dispatch, combine and slot_dots.
#include "kernels/cpu/ranks.h"
#include "kernels/cpu/rows.h"

namespace orrery::kernels::cpu::ORRERY_ISA {

namespace {

/// Experts begin .. end-1 of one group. A thread reads all ids of the group and writes the slots of its experts'
/// choices alone; the thread with expert 0 also writes those of ids that are of no expert.
struct OwnedExperts {
    const Slots& s;
    const std::int32_t* ids;  ///< [tokens * choices] of the group
    In weights;               ///< of all groups
    i64 group, begin, end;

    bool has(i64 e) const { return e >= begin && e < end; }

    void count(std::int32_t* load) const {
        for (i64 e = begin; e < end; ++e) load[e] = 0;
        for (i64 c = 0; c < s.chosen(); ++c)
            if (has(ids[c])) ++load[ids[c]];
    }

    /// smallest [experts]: the smallest key that has a place. keys [tokens * choices]: those of an expert are adjacent;
    /// next [experts]: the end of them. The first `slots` of an expert become a heap of its largest.
    void rank(const std::int32_t* load, i64* next, std::uint64_t* keys, std::uint64_t* smallest) const {
        for (i64 e = begin, at = 0; e < end; at += load[e++]) next[e] = at;
        for (i64 c = 0; c < s.chosen(); ++c) {
            if (!has(ids[c])) continue;
            float buffer;
            keys[next[ids[c]]++] = rank_key(*fetch(weights, group * s.chosen() + c, 1, &buffer), c);
        }
        for (i64 e = begin; e < end; ++e) {
            smallest[e] = 0;
            if (load[e] <= s.slots) continue;
            std::uint64_t* heap = keys + next[e] - load[e];
            for (i64 r = s.slots / 2; r-- > 0;) sift(heap, r, s.slots);
            for (i64 j = s.slots; j < load[e]; ++j) {
                if (heap[j] < heap[0]) continue;
                heap[0] = heap[j];
                sift(heap, 0, s.slots);
            }
            smallest[e] = heap[0];
        }
    }

    /// smallest: null without weights.
    void place(i64* next, const std::uint64_t* smallest, std::int32_t* slots) const {
        for (i64 e = begin; e < end; ++e) next[e] = 0;
        for (i64 c = 0; c < s.chosen(); ++c) {
            const i64 e = ids[c];
            if (!has(e)) {
                if (begin == 0 && (e < 0 || e >= s.experts)) slots[c] = -1;
                continue;
            }
            bool kept = next[e] < s.slots;
            if (kept && smallest != nullptr && smallest[e] != 0) {
                float buffer;
                kept = rank_key(*fetch(weights, group * s.chosen() + c, 1, &buffer), c) >= smallest[e];
            }
            slots[c] = kept ? static_cast<std::int32_t>(e * s.slots + next[e]++) : -1;
        }
    }
};

/// O(choices) for each thread that has experts of a group, and with weights O(load log slots) for an expert.
void assign_slots(Context& c, const Slots& s, const std::int32_t* ids, In weights, std::int32_t* slots,
                  std::int32_t* load) {
    const i64 n = s.chosen(), all = s.groups * s.experts;
    const int parts = parts_of(c.threads(), smaller(s.groups * n, all * grain), grain);
    const bool ranks = weights.data != nullptr;
    const i64 words = s.experts * (ranks ? 2 : 1) + (ranks ? n : 0);  // of one thread
    auto* const memory = static_cast<std::uint64_t*>(c.scratch(parts * words * 8));
    team(parts, [&](int part) {
        const i64 last = cut(all, parts, part + 1, 1);
        i64* const next = reinterpret_cast<i64*>(memory + part * words);
        std::uint64_t* const smallest = ranks ? memory + part * words + s.experts : nullptr;
        for (i64 first = cut(all, parts, part, 1), end = 0; first < last; first = end) {
            const i64 group = first / s.experts, from = group * s.experts;
            end = smaller(last, from + s.experts);
            const OwnedExperts own{s, ids + group * n, weights, group, first - from, end - from};
            own.count(load + from);
            if (ranks) own.rank(load + from, next, smallest + s.experts, smallest);
            own.place(next, smallest, slots + group * n);
        }
    });
}

float weight_of(In weights, i64 choice) {
    float buffer;
    return weights.data != nullptr ? *fetch(weights, choice, 1, &buffer) : 1.0f;
}

/// to = or += by * x over n floats.
ORRERY_INLINE void add_scaled(float* to, i64 n, const float* x, float by, bool first) {
    const Vec w(by);
    if (first) {
        map(
            to, n, [=](Vec v) { return w * v; }, x);
    } else {
        map(
            to, n, [=](Vec sum, Vec v) { return sum + w * v; }, to, x);
    }
}

/// Each thread has a range of slots of all groups. It lists their choices (of a slot, from the first to the last), then
/// writes their rows: x is read and y is written once.
void dispatch(Context& c, const Slots& s, In x, const std::int32_t* slots, In weights, Out y) {
    const i64 n = s.chosen(), held = s.held(), all = s.groups * held;
    auto* const first = static_cast<std::int32_t*>(c.scratch((all + s.groups * n) * 4));  // [groups, held]
    std::int32_t* const later = first + all;  // [groups, tokens * choices]: the next choice of the same slot
    parallel(c.threads(), all, 1 + grain / (s.cols + 1), 1, [&](i64 begin, i64 end) {
        for (i64 at = begin, stop = 0; at < end; at = stop) {
            const i64 group = at / held, from = group * held;
            stop = smaller(end, from + held);
            for (i64 slot = at; slot < stop; ++slot) first[slot] = -1;
            for (i64 choice = n; choice-- > 0;) {
                const i64 slot = s.local(slots[group * n + choice]);
                if (slot < at - from || slot >= stop - from) continue;
                later[group * n + choice] = first[from + slot];
                first[from + slot] = static_cast<std::int32_t>(choice);
            }
        }
        float from[tile], to[tile];
        for (i64 slot = begin; slot < end; ++slot) {
            const i64 group = slot / held;
            for (i64 i = 0; i < s.cols; i += tile) {
                const i64 size = smaller(s.cols - i, tile);
                float* const sum = target(y, slot * s.cols + i, to);
                if (first[slot] < 0) zero(sum, size);
                for (i64 choice = first[slot]; choice >= 0; choice = later[group * n + choice]) {
                    const i64 row = group * s.tokens + choice / s.choices;
                    add_scaled(sum, size, fetch(x, row * s.cols + i, size, from),
                               weight_of(weights, group * n + choice), choice == first[slot]);
                }
                flush(y, slot * s.cols + i, size, sum);
            }
        }
    });
}

void combine(Context& c, const Slots& s, In y, const std::int32_t* slots, In weights, Out x) {
    parallel(c.threads(), s.groups * s.tokens, 1 + grain / (s.choices * s.cols + 1), 1, [&](i64 begin, i64 end) {
        float from[tile], to[tile];
        for (i64 row = begin; row < end; ++row) {
            const i64 group = row / s.tokens;
            for (i64 i = 0; i < s.cols; i += tile) {
                const i64 size = smaller(s.cols - i, tile);
                float* const sum = target(x, row * s.cols + i, to);
                bool empty = true;
                for (i64 choice = row * s.choices; choice < (row + 1) * s.choices; ++choice) {
                    const i64 slot = s.local(slots[choice]);
                    if (slot < 0) continue;
                    add_scaled(sum, size, fetch(y, (group * s.held() + slot) * s.cols + i, size, from),
                               weight_of(weights, choice), empty);
                    empty = false;
                }
                if (empty) zero(sum, size);
                flush(x, row * s.cols + i, size, sum);
            }
        }
    });
}

void slot_dots(Context& c, const Slots& s, In y, In x, const std::int32_t* slots, Out dots) {
    parallel(c.threads(), s.groups * s.tokens, 1 + grain / (s.choices * s.cols + 1), 1, [&](i64 begin, i64 end) {
        float buffers[2][tile];
        for (i64 choice = begin * s.choices; choice < end * s.choices; ++choice) {
            const i64 row = choice / s.choices, slot = s.local(slots[choice]);
            const i64 from = (row / s.tokens * s.held() + slot) * s.cols;
            float sum = 0;
            for (i64 i = 0; i < s.cols && slot >= 0; i += tile) {
                const i64 size = smaller(s.cols - i, tile);
                sum += sum_map(
                    size, [](Vec a, Vec b) { return a * b; }, fetch(y, from + i, size, buffers[0]),
                    fetch(x, row * s.cols + i, size, buffers[1]));
            }
            dots.as<float>()[choice] = sum;
        }
    });
}

}  // namespace

void add_dispatch(Kernels& k) {
    k.assign_slots = assign_slots;
    k.dispatch = dispatch;
    k.combine = combine;
    k.slot_dots = slot_dots;
}

}  // namespace orrery::kernels::cpu::ORRERY_ISA
