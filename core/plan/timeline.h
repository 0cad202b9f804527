#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "orrery/schedule.h"

namespace orrery {

/// A fragment scheduled for the time [start, end).
struct Slot {
    Fragment fragment;
    int stage = 0;
    int64_t start = 0;
    int64_t end = 0;
};

/// The start and end of each fragment if every rank runs its order as early as possible and messages take no time.
struct Timeline {
    std::vector<std::vector<Slot>> ranks;  ///< by rank, in the order of the schedule
    int64_t makespan = 0;                  ///< end of the last fragment
    std::vector<int64_t> busy;             ///< by rank: time spent in fragments
    /// By rank: max number of (micro-batch, chunk) pairs with activations alive at once. They are alive from the start
    /// of F to the end of the last fragment (B or W) of the pair.
    std::vector<int64_t> peak;

    int64_t idle(size_t rank) const { return makespan - busy.at(rank); }
    /// Idle time of all ranks as a fraction of their total time; 0 for an empty schedule.
    double bubble() const;
};

/// The time units that a fragment takes on a pipeline rank, at least 0.
using FragmentTime = std::function<int64_t(int rank, const Fragment& fragment)>;

/// Timeline::peak of one rank. `slots` must be sorted by start.
int64_t activation_peak(const std::vector<Slot>& slots);

/// Whether any rank has W fragments.
bool splits_weights(const Schedule& schedule);
/// One unit for F, B and W each. B takes two units if the schedule has no W.
FragmentTime unit_time(const Schedule& schedule);

/// Computes the start of each fragment. F waits for F of the previous stage, B for F and for B of the next stage, W for
/// B. Linear. Throws Error if the orders deadlock, naming each blocked rank, its fragment and what it waits for.
Timeline timeline(const Schedule& schedule, const FragmentTime& time);
Timeline timeline(const Schedule& schedule);  ///< in the units of unit_time

}  // namespace orrery
