#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "orrery/schedule.h"

namespace orrery {

/// A fragment that a schedule runs in the time [start, end).
struct Slot {
    Fragment fragment;
    int stage = 0;
    int64_t start = 0;
    int64_t end = 0;
};

/// The start and end of each fragment if every rank runs its order as early as possible and messages take no time.
struct Timeline {
    std::vector<std::vector<Slot>> ranks;  ///< by rank: its fragments in the order of the schedule
    int64_t makespan = 0;                  ///< time at which the last fragment ends
    std::vector<int64_t> busy;             ///< by rank: total time spent in fragments
    /// For each rank, the max number of (micro-batch, chunk) pairs with activations alive at once. They are alive from
    /// the start of F to the end of the last fragment (B or W) of the pair.
    std::vector<int64_t> peak;

    int64_t idle(size_t rank) const { return makespan - busy.at(rank); }
    /// The idle time of all ranks as a fraction of their total time; 0 for an empty schedule.
    double bubble() const;
};

/// The number of time units that a fragment takes on a pipeline rank, at least 0.
using FragmentTime = std::function<int64_t(int rank, const Fragment& fragment)>;

/// The max number of (micro-batch, chunk) pairs of a rank with activations alive at once. `slots`: sorted by start.
int64_t activation_peak(const std::vector<Slot>& slots);

/// Whether any rank of the schedule has W fragments.
bool splits_weights(const Schedule& schedule);
/// Durations of fragments: one unit for F, B and W each, but two units for B if the schedule has no W.
FragmentTime unit_time(const Schedule& schedule);

/// Computes when each fragment starts. F waits for F of the previous stage, B for F and for B of the next stage, W for
/// B. Linear. Throws Error if the orders deadlock, naming each blocked rank, its fragment and what it waits for.
Timeline timeline(const Schedule& schedule, const FragmentTime& time);
Timeline timeline(const Schedule& schedule);  ///< timeline of a schedule, in the units of unit_time

}  // namespace orrery
