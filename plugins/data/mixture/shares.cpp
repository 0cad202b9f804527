#include "shares.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace shares {

std::vector<int64_t> counts_of(const std::vector<double>& weights, int64_t& too_small) {
    const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
    std::vector<int64_t> counts(weights.size());
    std::vector<double> rest(weights.size());
    int64_t left = window;
    for (size_t i = 0; i < weights.size(); ++i) {
        const double share = weights[i] / total * static_cast<double>(window);
        counts[i] = static_cast<int64_t>(std::floor(share));
        // A source that would get no sample comes before all others.
        rest[i] = weights[i] > 0 && counts[i] == 0 ? 1 + share : share - static_cast<double>(counts[i]);
        left -= counts[i];
    }
    std::vector<size_t> order(weights.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return rest[a] > rest[b]; });
    for (size_t i = 0; i < order.size() && left > 0; ++i)
        if (weights[order[i]] > 0) ++counts[order[i]], --left;
    too_small = -1;
    for (size_t i = 0; i < weights.size(); ++i)
        if (weights[i] > 0 && counts[i] == 0) too_small = static_cast<int64_t>(i);
    return counts;
}

Sequence::Sequence(const std::vector<int64_t>& counts, int64_t turn)
    : counts_(counts), turn_(turn % window), places_(window), where_(counts.size()) {
    std::vector<int64_t> placed(counts.size());
    for (int64_t i = 0; i < window; ++i) {
        size_t furthest = counts.size();
        int64_t most = 0;
        for (size_t k = 0; k < counts.size(); ++k) {
            const int64_t behind = counts[k] * (i + 1) - placed[k] * window;
            if (placed[k] == counts[k] || (furthest < counts.size() && behind <= most)) continue;
            furthest = k;
            most = behind;
        }
        places_[static_cast<size_t>(i)] = {static_cast<uint32_t>(furthest), static_cast<int32_t>(placed[furthest]++)};
        where_[furthest].push_back(static_cast<int32_t>(i));
    }
}

/// Number of the source's samples before `place` of the sequence without turn.
int64_t Sequence::upto(int64_t place, size_t source) const {
    const auto& where = where_[source];
    const auto in_period = std::lower_bound(where.begin(), where.end(), static_cast<int32_t>(place % window));
    return place / window * counts_[source] + (in_period - where.begin());
}

int64_t Sequence::before(int64_t index, size_t source) const { return upto(at(index), source) - upto(turn_, source); }

int64_t Sequence::index_of(int64_t count, size_t source) const {
    const int64_t nth = count + upto(turn_, source);
    return nth / counts_[source] * window + where_[source][static_cast<size_t>(nth % counts_[source])] - turn_;
}

}  // namespace shares
