#pragma once
#include <cstdint>

#include "orrery/plan.h"

namespace orrery {

/// A plan for prices alone: GEMMs of experts have only the rows that a given load fills.
struct ExpertLoads {
    Plan plan;
    int64_t launches = 0;  ///< number of launches of these GEMMs, in one pass over all streams
    double slots = 1;      ///< fraction of the slots that the load fills; the mean over launches
    double dropped = 0;    ///< fraction of an expert's tokens that find no slot; the mean over launches
};

/// Gives each expert `times` the mean load. Ranks that wait for each other in all-to-alls wait for the busiest, so this
/// is the step of a job in which the busiest rank's experts have so many times the mean. Without it, a plan's prices
/// are those of full slots. An all-to-all sends all slots whatever the load is, and keeps its price. Linear in the
/// stream.
ExpertLoads with_expert_loads(Plan plan, double times);

}  // namespace orrery
