#pragma once
#include <functional>
#include <utility>
#include <vector>

#include "plan/replay/replay.h"

namespace orrery {

/// How often each of several prices is paid: (price, times).
using Amounts = std::vector<std::pair<int, float>>;
void add_to(Amounts& all, int price, float times);

/// A view condensed to what its end depends on: nodes that take the sum of some prices and begin when others are over.
/// Channels and lanes are in order and nothing is dropped, so who waits for whom does not depend on what work costs.
/// To play it again with other prices takes a thousandth of a Replay's time, and tells the slopes.
struct Dag {
    struct Node {
        int duration = 0;         ///< of durations
        int first = 0, last = 0;  ///< its predecessors in `before`
    };
    std::vector<Amounts> durations;
    std::vector<Node> nodes;  ///< predecessors come first
    std::vector<int> before;

    /// When all is over, given each price. `slopes`, where not null, becomes d end / d price, one a price: how often
    /// the critical path pays it.
    double play(const std::vector<double>& prices, std::vector<double>* slopes = nullptr) const;
};

/// The graph that ends when Replay ends for a policy of the same costs, none of them open. `cost`: what an item of work
/// takes; of a message its send is asked, of a meeting one that comes. Throws Error where the view never ends.
/// Channels have no slots: a send that finds one is done at the earlier of two times, which no path can say.
Dag condensed(const ReplayView& view, const std::function<Amounts(int item)>& cost);

}  // namespace orrery
