#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/reference/values.h"

namespace orrery::kernels::reference {

namespace {

/// The order of top_k: NaN above all numbers.
bool larger(double a, double b) { return std::isnan(a) ? !std::isnan(b) : a > b; }

void assign_slots(Context&, const Slots& s, const std::int32_t* ids, In weights, std::int32_t* slots,
                  std::int32_t* load) {
    const i64 n = s.chosen();
    const Values by = weights.data != nullptr ? read(weights, s.groups * n) : Values{};
    for (i64 g = 0; g < s.groups; ++g) {
        std::fill_n(slots + g * n, n, -1);
        for (i64 e = 0; e < s.experts; ++e) {
            std::vector<i64> own;
            for (i64 c = g * n; c < (g + 1) * n; ++c)
                if (ids[c] == e) own.push_back(c);
            load[g * s.experts + e] = static_cast<std::int32_t>(own.size());
            if (!by.empty()) {
                std::ranges::stable_sort(own, [&](i64 a, i64 b) { return larger(by[a], by[b]); });
                own.resize(std::min(own.size(), static_cast<size_t>(s.slots)));
                std::ranges::sort(own);
            }
            for (i64 place = 0; place < std::min(s.slots, static_cast<i64>(own.size())); ++place)
                slots[own[place]] = static_cast<std::int32_t>(e * s.slots + place);
        }
    }
}

/// Calls f(choice, row of x, row of y) for each choice of a slot in this shard.
template <class F>
void each_choice(const Slots& s, const std::int32_t* slots, F f) {
    for (i64 c = 0; c < s.groups * s.chosen(); ++c) {
        const i64 at = s.local(slots[c]);
        if (at >= 0) f(c, c / s.choices, c / s.chosen() * s.held() + at);
    }
}

Values weights_of(const Slots& s, In weights) {
    const i64 n = s.groups * s.chosen();
    return weights.data != nullptr ? read(weights, n) : Values(static_cast<size_t>(n), 1);
}

void dispatch(Context&, const Slots& s, In x, const std::int32_t* slots, In weights, Out y) {
    const Values from = read(x, s.groups * s.tokens * s.cols), by = weights_of(s, weights);
    Values to(static_cast<size_t>(s.groups * s.held() * s.cols));
    each_choice(s, slots, [&](i64 c, i64 row, i64 slot) {
        for (i64 i = 0; i < s.cols; ++i) to[slot * s.cols + i] += by[c] * from[row * s.cols + i];
    });
    write(y, to);
}

void combine(Context&, const Slots& s, In y, const std::int32_t* slots, In weights, Out x) {
    const Values from = read(y, s.groups * s.held() * s.cols), by = weights_of(s, weights);
    Values to(static_cast<size_t>(s.groups * s.tokens * s.cols));
    each_choice(s, slots, [&](i64 c, i64 row, i64 slot) {
        for (i64 i = 0; i < s.cols; ++i) to[row * s.cols + i] += by[c] * from[slot * s.cols + i];
    });
    write(x, to);
}

void slot_dots(Context&, const Slots& s, In y, In x, const std::int32_t* slots, Out dots) {
    const Values held = read(y, s.groups * s.held() * s.cols), rows = read(x, s.groups * s.tokens * s.cols);
    Values to(static_cast<size_t>(s.groups * s.chosen()));
    each_choice(s, slots, [&](i64 c, i64 row, i64 slot) {
        for (i64 i = 0; i < s.cols; ++i) to[c] += held[slot * s.cols + i] * rows[row * s.cols + i];
    });
    write(dots, to);
}

}  // namespace

void add_dispatch(Kernels& k) {
    k.assign_slots = assign_slots;
    k.dispatch = dispatch;
    k.combine = combine;
    k.slot_dots = slot_dots;
}

}  // namespace orrery::kernels::reference
