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
    /// Factor by which kernels of a rank are slower, by rank: 1.5, for example.
    std::map<int64_t, double> slow;
    /// Each kernel is slower by a random factor from 1 to 1 + jitter, drawn from (seed, actor, instruction); 0: none.
    double jitter = 0;
    uint64_t seed = 1;
    /// Simulates each rank by itself, since ranks that share processors cannot represent each other.
    bool each_rank = false;
    /// Marks collectives, by class and index in its stream, in which members write to each other's mapped buffers as
    /// kernels need it (Transformer Engine's userbuffers). Such a collective takes as long as a message to the next
    /// member with the bytes that a ring sends. A class may have no marks.
    std::vector<std::vector<char>> mapped;
    /// Keeps every launch and message, for a trace or picture. Otherwise kernels without a wait in between are merged.
    bool every_launch = false;
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

/// One simulated launch, collective or message.
struct SimulatedItem {
    int actor = 0;
    int lane = 0;  ///< index of the actor's lane; lane 0 computes
    double issued = 0, start = 0,
           end = 0;  ///< seconds; `start` of a collective or message: when the last partner arrives
    Issued first;    ///< the first of `launches` consecutive instructions
    int launches = 1;
    int partner = none;  ///< send, receive: index of the matching item
};

/// Times in seconds of a fragment on one actor, from the start of its first kernel to the end of its last one.
struct SimulatedFragment {
    int actor = 0;
    Fragment fragment;
    double start = 0, end = 0;
};

struct Simulated {
    double step_s = 0;
    std::vector<SimulatedFragment> fragments;  ///< fragments by actor, in the order of their start
    std::vector<ActorTime> actors;
    std::vector<SimulatedItem> items;            ///< items by actor, in the order of issue; empty without every_launch
    std::vector<std::vector<int64_t>> ranks_of;  ///< ranks by actor, ascending; empty without every_launch
    std::map<std::pair<AxisId, std::string>, std::string> carried;  ///< by (axis, opcode and bytes): "ring, LL128"
    int64_t events = 0;
};

/// Simulates one step of a plan on a cluster by replaying it (plan/replay) with costs. Collectives and messages start
/// when the last partner has arrived, and share links with concurrent traffic. Throws Error if the plan does not end.
Simulated simulate(const Plan& plan, const Network& contracts, Prices& prices, const SimulateOptions& options = {});

}  // namespace orrery
