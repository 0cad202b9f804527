#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <numeric>
#include <vector>

#include "kernels/reference/values.h"

namespace orrery::kernels::reference {

namespace {

/// Calls f(element of x, element of the picks) for each pick in the shard.
template <class F>
void each_pick(const Picks& s, const std::int32_t* ids, F f) {
    const auto& [outer, size, inner] = s.x;
    for (i64 o = 0; o < outer; ++o) {
        for (i64 j = 0; j < s.picks; ++j) {
            for (i64 i = 0; i < inner; ++i) {
                const i64 pick = o * s.picks + j;
                const i64 at = ids[s.rows ? pick : pick * inner + i] - s.start;
                if (at >= 0 && at < size) f((o * size + at) * inner + i, pick * inner + i);
            }
        }
    }
}

void gather(Context&, const Picks& s, In x, const std::int32_t* ids, Out y) {
    const auto width = static_cast<size_t>(size_of(x.type));
    std::vector<std::byte> to(static_cast<size_t>(s.x.outer * s.picks * s.x.inner) * width);
    each_pick(s, ids, [&](i64 held, i64 pick) {
        std::memcpy(to.data() + static_cast<size_t>(pick) * width,
                    x.as<std::byte>() + static_cast<size_t>(held) * width, width);
    });
    if (!to.empty()) std::memcpy(y.data, to.data(), to.size());
}

void scatter_add(Context&, const Picks& s, In x, const std::int32_t* ids, Out y) {
    const Values v = read(x, s.x.outer * s.picks * s.x.inner);
    Values sums(static_cast<size_t>(s.x.outer * s.x.size * s.x.inner));
    each_pick(s, ids, [&](i64 held, i64 pick) { sums[held] += v[pick]; });
    write(y, sums, s.accumulate);
}

/// Whether a comes before b in descending order, NaN first.
bool above(double a, double b) { return std::isnan(a) ? !std::isnan(b) : a > b; }

void top_k(Context&, const Along& s, i64 k, In x, Out values, std::int32_t* ids) {
    const Values v = read(x, s.outer * s.size * s.inner);
    Values best(static_cast<size_t>(s.outer * k * s.inner));
    std::vector<i64> order(static_cast<size_t>(s.size));
    for (i64 lane = 0; lane < s.outer * s.inner; ++lane) {
        const i64 o = lane / s.inner, i = lane % s.inner;
        const auto element = [&](i64 j) { return v[(o * s.size + j) * s.inner + i]; };
        std::iota(order.begin(), order.end(), 0);
        std::stable_sort(order.begin(), order.end(), [&](i64 a, i64 b) { return above(element(a), element(b)); });
        for (i64 j = 0; j < k; ++j) {
            const i64 at = (o * k + j) * s.inner + i;
            best[at] = element(order[j]);
            ids[at] = static_cast<std::int32_t>(order[j]);
        }
    }
    write(values, best);
}

void cumsum(Context&, const Along& s, bool reverse, bool exclusive, In x, Out y) {
    Values v = read(x, s.outer * s.size * s.inner);
    for (i64 lane = 0; lane < s.outer * s.inner; ++lane) {
        double sum = 0;
        for (i64 j = 0; j < s.size; ++j) {
            const i64 row = lane / s.inner * s.size + (reverse ? s.size - 1 - j : j);
            double& element = v[row * s.inner + lane % s.inner];
            const double before = sum;
            sum += element;
            element = exclusive ? before : sum;
        }
    }
    write(y, v);
}

void iota(Context&, const Along& s, i64 start, Out y) {
    Values v(static_cast<size_t>(s.outer * s.size * s.inner));
    for (size_t e = 0; e < v.size(); ++e) v[e] = static_cast<double>(start + static_cast<i64>(e) / s.inner % s.size);
    write(y, v);
}

void one_hot(Context&, const std::int32_t* ids, i64 n, i64 start, i64 cols, Out y) {
    Values v(static_cast<size_t>(n * cols));
    for (i64 i = 0; i < n; ++i) {
        const i64 column = ids[i] - start;
        if (column >= 0 && column < cols) v[i * cols + column] = 1;
    }
    write(y, v);
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

}  // namespace orrery::kernels::reference
