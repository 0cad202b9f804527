#pragma once
#include <cstdint>
#include <map>
#include <vector>

#include "orrery/plan.h"

namespace orrery {

/// Groups ranks that take the same time, so that one of them is simulated for all; returns each rank's group. Ranks of
/// one class of the plan are a group unless some ranks are slow (`slow`: factor by rank) or on another kind of node
/// (`kinds`: by rank; empty: one kind). Such ranks are grouped apart, and the others by the groups of the ranks with
/// which they communicate along each axis. Time is linear in ranks, times axes and rounds.
std::vector<int> classes_by_distance(const Plan& plan, const std::map<int64_t, double>& slow,
                                     const std::vector<int>& kinds = {});

}  // namespace orrery
