#include "kernels/philox.h"

#include <cmath>
#include <numbers>

#include "kernels/reference/values.h"

namespace orrery::kernels::reference {

namespace {

i64 global_index(const Region& at, i64 i) {
    if (at.global.empty()) return i;
    i64 index = 0, stride = 1;
    for (i64 d = static_cast<i64>(at.local.size()) - 1; d >= 0; --d) {
        index += (d == 1 && at.places ? at.places[i] : i % at.local[d] + at.offset[d]) * stride;
        i /= at.local[d];
        stride *= at.global[d];
    }
    return index;
}

/// Box and Muller: words 0, 1 make elements 0, 1 and words 2, 3 make elements 2, 3.
double normal(const Philox& words, i64 lane) {
    const std::uint32_t* pair = words.word + (lane & 2);
    const double radius = std::sqrt(-2 * std::log(static_cast<double>(open_unit(pair[0]))));
    const double angle = 2 * std::numbers::pi * unit(pair[1]);
    return radius * ((lane & 1) != 0 ? std::sin(angle) : std::cos(angle));
}

void random(Context&, Out y, Region at, Draw kind, double scale, std::uint64_t stream, const std::uint32_t* seed) {
    Values v(static_cast<size_t>(count(at.local)));
    for (size_t i = 0; i < v.size(); ++i) {
        const i64 g = global_index(at, static_cast<i64>(i));
        const Philox words = draw(static_cast<std::uint64_t>(g) >> 2, stream, *seed);
        v[i] = scale * (kind == Draw::normal ? normal(words, g & 3) : 2.0 * unit(words.word[g & 3]) - 1.0);
    }
    write(y, v);
}

void dropout(Context&, In x, Out y, Region at, double p, std::uint64_t stream, const std::uint32_t* seed) {
    Values v = read(x, count(at.local));
    for (size_t i = 0; i < v.size(); ++i) {
        const i64 g = global_index(at, static_cast<i64>(i));
        const Philox words = draw(static_cast<std::uint64_t>(g) >> 2, stream, *seed);
        v[i] = words.word[g & 3] < drop_below(p) ? 0 : v[i] / (1 - p);
    }
    write(y, v);
}

}  // namespace

void add_random(Kernels& k) {
    k.random = random;
    k.dropout = dropout;
}

}  // namespace orrery::kernels::reference
