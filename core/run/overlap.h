#pragma once
#include <set>
#include <string>
#include <vector>

#include "orrery/plan.h"
#include "plan/network.h"
#include "run/settings.h"

namespace orrery {

/// Whose collectives get a thread of their own, and what a run says of it.
struct Overlapping {
    std::set<std::string> axes;
    std::vector<std::string> notes;  ///< which axes have it; with run.overlap = "on", which cannot and why
};

/// By [run] overlap. `automatic`: where a rank's processors are more than its threads, for axes with a collective that
/// kernels can run beside. Not where a transport queues its calls itself, is staged, or also carries messages, which
/// it may not take beside a collective. `processors`: as has_spare_processors has it.
Overlapping overlapping(const Settings& settings, const Job& job, const Network& contracts,
                        const std::vector<const Plan*>& plans, int64_t processors = 0);

/// Whether a kernel stands between a collective of the axis and the first instruction that waits for it.
bool has_kernels_beside(const Plan& plan, int64_t rank, const std::string& axis);

/// Whether a rank of this host has more processors than threads. `processors`: of another host, which all its ranks
/// share, and whose threads the job says; 0: of this one.
bool has_spare_processors(const Settings& settings, const Job& job, int64_t processors = 0);

}  // namespace orrery
