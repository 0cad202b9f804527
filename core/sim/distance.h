#pragma once
#include <cstdint>
#include <map>
#include <vector>

#include "orrery/plan.h"

namespace orrery {

/// Groups ranks that can be simulated as one; returns each rank's group. Ranks of one class of the plan are in one
/// group unless some of them are slow or on another kind of node. Such ranks are separated by `slow` and `kinds`, the
/// others by the axes along which they share a group with such ranks, directly or through others. `kinds`: by rank;
/// empty: all the same. Time is linear in ranks, times axes and rounds.
std::vector<int> classes_by_distance(const Plan& plan, const std::map<int64_t, double>& slow,
                                     const std::vector<int>& kinds = {});

}  // namespace orrery
