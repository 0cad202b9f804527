#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "orrery/plan.h"
#include "plan/network.h"
#include "plan/repeat.h"
#include "sim/prices.h"

namespace orrery {

struct SimulateOptions {
    /// Factor by which all kernels of a rank are slower, by rank.
    std::map<int64_t, double> slow;
    /// Each kernel is slower by a random factor from 1 to 1 + jitter, drawn from (seed, actor, instruction); 0: none.
    double jitter = 0;
    uint64_t seed = 1;
    /// Simulates each rank by itself, since ranks that share processors cannot represent each other.
    bool each_rank = false;
    /// Marks collectives, by rank class and index in its stream, in which members write to each other's mapped buffers
    /// as kernels need it (Transformer Engine's userbuffers). Such a collective takes as long as a message to the next
    /// member with the bytes that a ring sends. A class may have no marks.
    std::vector<std::vector<char>> mapped;
    /// Keeps every launch and message, for a trace or picture. Otherwise kernels without a wait in between are merged.
    bool every_launch = false;
    bool lanes = false;  ///< keeps SimulatedLane of each actor, for a picture
};

/// Where the time of a simulated rank went, in seconds. computing + exposed + waiting = step.
struct ActorTime {
    int of_class = 0;
    int64_t rank = 0;   ///< the lowest rank that the actor represents
    int64_t ranks = 1;  ///< number of ranks that the actor represents
    double computing = 0;
    double communicating = 0;          ///< time of messages and collectives in flight, including time hidden by kernels
    std::map<AxisId, double> exposed;  ///< part of `communicating` that kernels waited for
    double waiting = 0;                ///< time of waiting for other ranks: pipeline bubbles, and late members
};

struct SimulatedItem {
    int actor = 0;
    int lane = 0;  ///< queue of the actor (simulated rank) that does the work: 0 computes, the others communicate
    double issued = 0, start = 0,
           end = 0;  ///< in seconds; a collective or message starts when its last partner arrives
    Issued first;    ///< first of the `launches` consecutive instructions that this item represents
    int launches = 1;
    int partner = none;  ///< for a send or receive: index in `items` of the matching receive or send
};

/// A fragment (a stage's forward or backward of one micro-batch) on an actor, with the times of its kernels in seconds.
struct SimulatedFragment {
    int actor = 0;
    Fragment fragment;
    double start = 0, end = 0;
};

/// When an actor communicates over an axis, as disjoint intervals in ascending order, in seconds.
struct SimulatedLane {
    int actor = 0;
    AxisId axis =
        none;  ///< none: the compute lane, with `busy`: kernels outside all fragments, such as the optimizer's
    std::vector<std::pair<double, double>> busy;     ///< messages and collectives in flight
    std::vector<std::pair<double, double>> exposed;  ///< part of it that kernels waited for, as in ActorTime::exposed
};

struct Simulated {
    double step_s = 0;
    std::vector<SimulatedFragment> fragments;  ///< by actor, in the order of their start
    std::vector<ActorTime> actors;
    std::vector<SimulatedLane> lanes;            ///< by actor and axis; empty without SimulateOptions::lanes
    std::vector<SimulatedItem> items;            ///< by actor, in the order of issue; empty without every_launch
    std::vector<std::vector<int64_t>> ranks_of;  ///< ranks by actor, ascending; empty without every_launch
    std::map<std::pair<AxisId, std::string>, std::string> carried;  ///< by (axis, opcode and bytes): "ring, LL128"
    int64_t events = 0;
};

/// Simulates one step of a plan on a cluster by replaying it (plan/replay) with costs. Collectives and messages start
/// when the last partner has arrived, and share links with concurrent traffic. Throws Error if the plan does not end.
Simulated simulate(const Plan& plan, const Network& contracts, Prices& prices, const SimulateOptions& options = {});

}  // namespace orrery
