#pragma once
#include <functional>
#include <utility>
#include <vector>

#include "plan/replay/replay.h"

namespace orrery {

/// A duration as a sum of prices: pairs of the index of a price and how often it is paid.
using Amounts = std::vector<std::pair<int, float>>;
void add_to(Amounts& all, int price, float times);

/// The graph of a ReplayView that gives its end time for any prices. A node starts when its predecessors end, and its
/// duration is a sum of prices. An evaluation takes a thousandth of the time of a Replay and also gives derivatives.
struct Dag {
    struct Node {
        int duration = 0;
        int first = 0, last = 0;  ///< its predecessors are before[first] to before[last - 1]
    };
    std::vector<Amounts> durations;
    std::vector<Node> nodes;  ///< sorted so that predecessors come first
    std::vector<int> before;

    /// End time of the graph, given prices. `slopes`: how often the critical path pays each price, d end / d price.
    double play(const std::vector<double>& prices, std::vector<double>* slopes = nullptr) const;
};

/// The graph with the end time of a Replay of the view. `cost`: the duration of a work item, of a message (asked for
/// its send), or of a meeting (asked for one member). Throws Error if the view deadlocks. Channels must have no slots:
/// a send that takes a slot ends at the minimum of two times, which a longest path cannot express.
Dag condensed(const ReplayView& view, const std::function<Amounts(int item)>& cost);

}  // namespace orrery
