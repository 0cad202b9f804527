#pragma once
#include <cstdint>
#include <map>
#include <vector>

#include "orrery/plan.h"

namespace orrery {

/// By rank: which ranks may be played as one. Ranks of one class of the plan are, but where some are slow or sit on
/// another kind of node: those are told apart by what `slow` and `kinds` say of them, and all others by along which
/// axes they share a group with which of them, directly or by way of others. `kinds`: by rank; empty: all alike. Linear
/// in ranks, times axes and rounds.
std::vector<int> classes_by_distance(const Plan& plan, const std::map<int64_t, double>& slow,
                                     const std::vector<int>& kinds = {});

}  // namespace orrery
