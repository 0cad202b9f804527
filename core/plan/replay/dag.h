#pragma once
#include <functional>
#include <utility>
#include <vector>

#include "plan/replay/replay.h"

namespace orrery {

/// A duration as a sum of prices: pairs of the price's index and how often it is paid.
using Amounts = std::vector<std::pair<int, float>>;
void add_to(Amounts& all, int price, float times);

/// A ReplayView reduced to a graph that gives its end time. A node starts when its predecessors end and takes a sum of
/// prices. Channels and lanes are in order, so one graph serves for all prices. Evaluating it takes a thousandth of the
/// time of a Replay and also gives the derivatives.
struct Dag {
    struct Node {
        int duration = 0;         ///< index in `durations`
        int first = 0, last = 0;  ///< range of `before` with its predecessors: from `first` to `last` - 1
    };
    std::vector<Amounts> durations;
    std::vector<Node> nodes;  ///< sorted so that predecessors come first
    std::vector<int> before;

    /// End time of the graph for given prices. `slopes`: d end / d price, how often the critical path pays each price.
    double play(const std::vector<double>& prices, std::vector<double>* slopes = nullptr) const;
};

/// The graph with the end time of a Replay of the view without open ends. `cost`: the duration of a work item, of a
/// message (asked for its send), or of a meeting (asked for one member). Throws Error if the view deadlocks. Channels
/// must have no slots: a send that takes a slot ends at the minimum of two times, which a longest path cannot express.
Dag condensed(const ReplayView& view, const std::function<Amounts(int item)>& cost);

}  // namespace orrery
