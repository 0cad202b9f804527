#pragma once
#include <cstdint>
#include <utility>
#include <vector>

#include "run/preflight/figures.h"
#include "run/preflight/trial_line.h"

namespace orrery {

/// Pairs of ranks measured at the same time: for each node at most one pair inside it or one pair with another node.
struct PairRound {
    std::vector<std::pair<int64_t, int64_t>> pairs;  ///< pairs of ranks, lower rank first
};

/// Schedules every pair of ranks once; `node_of`: each rank's node. First come the pairs inside nodes, then for each
/// pair of nodes the ranks with the same local index (a rail), then the others; if time runs out, at least the rails
/// have been measured. The number of rounds is L (L-1)/2 + L^2 (N-1) for N nodes of L ranks, N even.
std::vector<PairRound> pair_rounds(const std::vector<int64_t>& node_of);
std::vector<PairRound> only(const std::vector<PairRound>& rounds,
                            const std::vector<std::pair<int64_t, int64_t>>& pairs);

struct PairCheckOptions {
    int pings = 30;
    int repeats = 5;          ///< number of timed messages in each direction
    double message_s = 0.01;  ///< messages grow until one takes this long
    double limit_s = 60;      ///< no new round starts after this many seconds
};

/// Measures the pairs of the rounds until the time limit: latency, bandwidth in each direction and both at once, and
/// wrong bytes. Collective over the ranks of `line`, which exchange results by `ranks`; all return the same figures, in
/// the order of the rounds. Ranks without a pair wait, asleep if their transport allows it.
std::vector<PairFigures> check_pairs(TrialLine& line, Exchange& ranks, const std::vector<int64_t>& node_of,
                                     const std::vector<PairRound>& rounds, const PairCheckOptions& options);

}  // namespace orrery
