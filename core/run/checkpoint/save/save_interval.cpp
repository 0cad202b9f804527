#include "run/checkpoint/save/save_interval.h"

#include <algorithm>
#include <cmath>

#include "base/failures/checkpoint_interval.h"

namespace orrery {

void RecentCosts::add(const SaveCost& cost) {
    constexpr size_t most = 5;
    if (costs_.size() == most) costs_.erase(costs_.begin());
    costs_.push_back(cost);
}

SaveCost RecentCosts::median() const {
    if (costs_.empty()) return {};
    const auto of = [&](double SaveCost::*number) {
        std::vector<double> sorted;
        for (const SaveCost& cost : costs_) sorted.push_back(cost.*number);
        std::sort(sorted.begin(), sorted.end());
        return (sorted[(sorted.size() - 1) / 2] + sorted[sorted.size() / 2]) / 2;
    };
    return {of(&SaveCost::held_s), of(&SaveCost::whole_s), costs_.back().step_s};
}

int64_t steps_between_saves(const SaveCost& cost, double between_failures_s) {
    constexpr double most = 1e12;  // max steps, more than any run has
    const double best = best_checkpoint_interval({cost.held_s, 0, between_failures_s});
    if (!(cost.step_s > 0) || std::max(best, cost.whole_s) >= most * cost.step_s) return static_cast<int64_t>(most);
    return static_cast<int64_t>(std::max({1.0, std::round(best / cost.step_s), std::ceil(cost.whole_s / cost.step_s)}));
}

}  // namespace orrery
