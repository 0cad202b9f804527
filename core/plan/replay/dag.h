#pragma once
#include <functional>
#include <utility>
#include <vector>

#include "plan/replay/replay.h"

namespace orrery {

/// A cost as (price, number of times it is paid) pairs.
using Amounts = std::vector<std::pair<int, float>>;
void add_to(Amounts& all, int price, float times);

/// A view reduced to a graph for its end time. A node starts when its predecessors end and takes a sum of prices.
/// Channels and lanes are in order, so this graph is the same for all prices. Evaluating it takes a thousandth of the
/// time of a Replay and also gives the derivatives.
struct Dag {
    struct Node {
        int duration = 0;         ///< index in `durations`
        int first = 0, last = 0;  ///< predecessors: before[first] to before[last - 1]
    };
    std::vector<Amounts> durations;
    std::vector<Node> nodes;  ///< sorted so that predecessors come first
    std::vector<int> before;

    /// The end time for given prices. `slopes`: set to d end / d price, how often the critical path pays each price.
    double play(const std::vector<double>& prices, std::vector<double>* slopes = nullptr) const;
};

/// The graph with the same end time as a Replay without open ends. `cost`: the duration of a work item, of a message
/// (asked for its send), or of a meeting (asked for one member). Throws Error if the view deadlocks. Channels must have
/// no slots, because a send that takes a slot ends at the minimum of two times, which a longest path cannot express.
Dag condensed(const ReplayView& view, const std::function<Amounts(int item)>& cost);

}  // namespace orrery
