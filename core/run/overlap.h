#pragma once
#include <set>
#include <string>
#include <vector>

#include "orrery/plan.h"
#include "plan/network.h"
#include "run/settings.h"

namespace orrery {

/// The mesh axes whose collectives run on a communication thread, alongside kernels.
struct Overlapping {
    std::set<std::string> axes;
    std::vector<std::string> notes;  ///< lines to print: axes with a thread; with overlap "on" also the others and why
};

/// Chooses, by [run] overlap, the axes whose collectives run on a communication thread. `automatic` chooses an axis if
/// kernels can run during its collectives and a rank has more processors than threads. An axis gets no thread if its
/// transport queues calls itself, copies through host memory, or also carries messages, because a transport need not
/// support a message during a collective. `processors`: number of processors of the ranks' host; 0: of this host.
Overlapping overlapping(const Settings& settings, const Job& job, const Network& contracts,
                        const std::vector<const Plan*>& plans, int64_t processors = 0);

/// Whether a kernel runs between a collective of the axis and the first instruction that waits for the collective.
bool has_kernels_beside(const Plan& plan, int64_t rank, const std::string& axis);

/// Whether each rank of a host has more processors than threads. `job`: number of the host's ranks and their threads.
/// `processors`: number of the host's processors; 0: those of this host.
bool has_spare_processors(const Settings& settings, const Job& job, int64_t processors = 0);

}  // namespace orrery
