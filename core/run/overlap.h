#pragma once
#include <set>
#include <string>
#include <vector>

#include "orrery/plan.h"
#include "plan/network.h"
#include "run/settings.h"

namespace orrery {

/// The axes whose collectives run on a thread of their own.
struct Overlapping {
    std::set<std::string> axes;
    std::vector<std::string> notes;  ///< lines to print: axes with a thread; with overlap "on" also the others and why
};

/// Chooses these axes by [run] overlap. `automatic` chooses axes with a collective that kernels can hide, if a rank has
/// more processors than threads. An axis gets no thread if its transport queues calls itself, is staged, or also
/// carries messages, because a transport need not support a message during a collective. `processors`: see
/// has_spare_processors.
Overlapping overlapping(const Settings& settings, const Job& job, const Network& contracts,
                        const std::vector<const Plan*>& plans, int64_t processors = 0);

/// Whether a kernel runs between a collective of the axis and the first instruction that waits for it.
bool has_kernels_beside(const Plan& plan, int64_t rank, const std::string& axis);

/// Whether ranks of this host have more processors than threads. `processors`: number of processors of another host,
/// shared by its ranks, whose threads are in `job`; 0: this host.
bool has_spare_processors(const Settings& settings, const Job& job, int64_t processors = 0);

}  // namespace orrery
