#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "orrery/schedule.h"

namespace orrery {

/// A fragment (forward or backward of one stage and micro-batch) and when a rank runs it, in units of FragmentTime.
struct Slot {
    Fragment fragment;
    int stage = 0;
    int64_t start = 0;
    int64_t end = 0;
};

/// When each fragment runs if every rank runs its fragments in order, as early as possible, and messages take no time.
struct Timeline {
    std::vector<std::vector<Slot>> ranks;  ///< by pipeline rank: its fragments, in the order of the schedule
    int64_t makespan = 0;                  ///< time at which the last fragment ends
    std::vector<int64_t> busy;             ///< by pipeline rank: total time spent in fragments
    /// By pipeline rank: the max number of micro-batches with activations in memory at once. A micro-batch counts once
    /// for each stage of the rank. Activations live from the start of its forward to the end of its backward there.
    std::vector<int64_t> peak;

    int64_t idle(size_t rank) const { return makespan - busy.at(rank); }
    /// The idle time of all ranks as a fraction of their total time; 0 for an empty schedule.
    double bubble() const;
};

/// The number of time units that a fragment takes on a pipeline rank, at least 0.
using FragmentTime = std::function<int64_t(int rank, const Fragment& fragment)>;

/// The max number of micro-batches with activations in memory at once on a rank. `slots`: its fragments by start.
int64_t activation_peak(const std::vector<Slot>& slots);

/// Whether the schedule computes gradients of weights in fragments of their own (W).
bool splits_weights(const Schedule& schedule);
/// Durations of fragments: forward 1, backward 2; if a schedule splits backward into B and W, each takes 1.
FragmentTime unit_time(const Schedule& schedule);

/// Computes when each fragment runs: forward (F) after F of the previous stage, backward (B) after its F and B of the
/// next stage, W after its B. Linear. Throws Error if ranks deadlock, naming the fragments that block them.
Timeline timeline(const Schedule& schedule, const FragmentTime& time);
Timeline timeline(const Schedule& schedule);  ///< a timeline with fragment durations of unit_time

}  // namespace orrery
