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
    /// Ranks whose kernels take so many times as long as the others': 1.5.
    std::map<int64_t, double> slow;
    /// Each kernel takes between 1 and 1 + jitter times as long, by chance of (seed, actor, instruction); 0: none.
    double jitter = 0;
    uint64_t seed = 1;
    /// Each rank is an actor of its own: where ranks share processors, none may stand for others.
    bool each_rank = false;
    /// By class, and by index in its stream; a class may have none: a collective that members write into each other's
    /// mapped buffers as kernels ask for it, as Transformer Engine's userbuffers do. It takes what a message to the
    /// next member takes of as many bytes as a ring of them sends, and no more.
    std::vector<std::vector<char>> mapped;
    /// Keeps every launch and message by itself, for a trace or picture. Otherwise kernels between which nothing waits
    /// are one.
    bool every_launch = false;
};

/// Where the time of one rank that an actor stands for went, in seconds. computing + exposed + waiting = step.
struct ActorTime {
    int of_class = 0;
    int64_t rank = 0;   ///< the first of them
    int64_t ranks = 1;  ///< how many it stands for
    double computing = 0;
    double communicating = 0;          ///< messages and collectives on their way, whatever ran beside them
    std::map<AxisId, double> exposed;  ///< of those what kernels waited for
    double waiting = 0;                ///< for other ranks: a pipeline's bubble, and members that come later
};

/// One launch, collective or message as it was played.
struct SimulatedItem {
    int actor = 0;
    int lane = 0;  ///< of the actor: 0 computes
    double issued = 0, start = 0,
           end = 0;  ///< seconds. `start`: of a meeting or message, when the last partner is there
    Issued first;    ///< of `launches` instructions that follow each other
    int launches = 1;
    int partner = none;  ///< send, receive: the item that it met
};

/// A fragment on one actor, from the start of its first kernel to the end of its last, in seconds.
struct SimulatedFragment {
    int actor = 0;
    Fragment fragment;
    double start = 0, end = 0;
};

struct Simulated {
    double step_s = 0;
    std::vector<SimulatedFragment> fragments;  ///< by actor, in the order of their start
    std::vector<ActorTime> actors;
    std::vector<SimulatedItem> items;            ///< by actor, in the order of issue; empty without every_launch
    std::vector<std::vector<int64_t>> ranks_of;  ///< by actor, ascending; empty without every_launch
    std::map<std::pair<AxisId, std::string>, std::string> carried;  ///< what carried (axis, opcode and bytes)
    int64_t events = 0;
};

/// Plays one step of a plan on a cluster: plan/replay with costs. Collectives and messages start when the last partner
/// has come, and share links with whatever else is on them. Throws Error where the plan does not end.
Simulated simulate(const Plan& plan, const Network& contracts, Prices& prices, const SimulateOptions& options = {});

}  // namespace orrery
