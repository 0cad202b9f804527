#include <algorithm>
#include <map>
#include <set>

#include "run/preflight/pair_checks.h"

namespace orrery {
namespace {

using Pairs = std::vector<std::pair<int64_t, int64_t>>;

std::pair<int64_t, int64_t> ordered(int64_t a, int64_t b) { return {std::min(a, b), std::max(a, b)}; }

/// Schedules each pair of `count` nodes, by the circle method of tournaments: at most one pair per node and round.
std::vector<Pairs> tournament(int64_t count) {
    const int64_t even = count + count % 2;  // with an odd count, one node pauses in each round
    std::vector<Pairs> rounds;
    for (int64_t round = 0; round + 1 < even; ++round) {
        Pairs pairs;
        for (int64_t i = 0; i < even / 2; ++i) {
            const int64_t a = i == 0 ? even - 1 : (round + i) % (even - 1);
            const int64_t b = (round + even - 1 - i) % (even - 1);
            if (a < count && b < count) pairs.push_back(ordered(a, b));
        }
        rounds.push_back(pairs);
    }
    return rounds;
}

}  // namespace

std::vector<PairRound> pair_rounds(const std::vector<int64_t>& node_of) {
    std::map<int64_t, std::vector<int64_t>> by_node;
    for (size_t rank = 0; rank < node_of.size(); ++rank) by_node[node_of[rank]].push_back(static_cast<int64_t>(rank));
    std::vector<std::vector<int64_t>> nodes;
    size_t most = 0;
    for (const auto& [node, ranks] : by_node) {
        nodes.push_back(ranks);
        most = std::max(most, ranks.size());
    }
    std::vector<PairRound> rounds;
    for (size_t i = 0; i < most; ++i)
        for (size_t j = i + 1; j < most; ++j) {
            PairRound round;
            for (const auto& ranks : nodes)
                if (j < ranks.size()) round.pairs.push_back(ordered(ranks[i], ranks[j]));
            rounds.push_back(round);
        }
    const std::vector<Pairs> meetings = tournament(static_cast<int64_t>(nodes.size()));
    for (size_t shift = 0; shift < most; ++shift)
        for (const Pairs& meeting : meetings)
            for (size_t i = 0; i < most; ++i) {
                PairRound round;
                const size_t j = (i + shift) % most;
                for (const auto& [a, b] : meeting) {
                    const auto &left = nodes[static_cast<size_t>(a)], &right = nodes[static_cast<size_t>(b)];
                    if (i < left.size() && j < right.size()) round.pairs.push_back(ordered(left[i], right[j]));
                }
                if (!round.pairs.empty()) rounds.push_back(round);
            }
    return rounds;
}

std::vector<PairRound> only(const std::vector<PairRound>& rounds, const Pairs& pairs) {
    const std::set<std::pair<int64_t, int64_t>> wanted(pairs.begin(), pairs.end());
    std::vector<PairRound> kept;
    for (const PairRound& round : rounds) {
        PairRound some;
        for (const auto& pair : round.pairs)
            if (wanted.count(pair)) some.pairs.push_back(pair);
        if (!some.pairs.empty()) kept.push_back(some);
    }
    return kept;
}

}  // namespace orrery
