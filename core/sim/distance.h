#pragma once
#include <cstdint>
#include <map>
#include <vector>

#include "orrery/plan.h"

namespace orrery {

/// Groups ranks that take the same time, so that one of them is simulated for all; returns each rank's group. Ranks
/// with the same program (a class of the plan) are one group unless some ranks are slow (`slow`: factor by rank) or
/// kinds of node differ (`kinds`: by rank; empty: one kind). Then ranks of a group also have the same factor and kind
/// of node, and communicate along each axis with ranks of the same groups. Time is linear in ranks, times axes and
/// rounds.
std::vector<int> classes_by_distance(const Plan& plan, const std::map<int64_t, double>& slow,
                                     const std::vector<int>& kinds = {});

}  // namespace orrery
