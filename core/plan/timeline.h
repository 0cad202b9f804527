#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "orrery/schedule.h"

namespace orrery {

/// A fragment at its place in time, [start, end).
struct Slot {
    Fragment fragment;
    int stage = 0;
    int64_t start = 0;
    int64_t end = 0;
};

/// When each fragment of a schedule runs if every rank runs its order as early as it can and messages take no time.
struct Timeline {
    std::vector<std::vector<Slot>> ranks;  ///< in each rank's order
    int64_t makespan = 0;                  ///< end of the last fragment
    std::vector<int64_t> busy;             ///< per rank: time spent in fragments
    /// Per rank: most micro-batches times chunks whose activations are alive at once, from the start of F to the end of
    /// the last fragment (B or W) of the same micro-batch and chunk.
    std::vector<int64_t> peak;

    int64_t idle(size_t rank) const { return makespan - busy.at(rank); }
    /// Idle time of all ranks as a fraction of their time; 0 for an empty schedule.
    double bubble() const;
};

/// Time units that a fragment takes on a pipeline rank, 0 or more.
using FragmentTime = std::function<int64_t(int rank, const Fragment& fragment)>;

/// Timeline::peak of one rank, whose slots are in the order of their start.
int64_t activation_peak(const std::vector<Slot>& slots);

/// Does some rank run weight gradients as fragments of their own?
bool splits_weights(const Schedule& schedule);
/// F, B and W take one unit each; B takes two where weight gradients run with it.
FragmentTime unit_time(const Schedule& schedule);

/// Places every fragment: F after F of the stage before, B after F and after B of the stage behind, W after B; greedy,
/// linear in the number of fragments but for waiting. Throws Error when some order waits for ever, naming each stuck
/// rank, its fragment and what it waits for.
Timeline timeline(const Schedule& schedule, const FragmentTime& time);
Timeline timeline(const Schedule& schedule);  ///< in unit time

}  // namespace orrery
