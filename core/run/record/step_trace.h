#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "run/session.h"
#include "trace/plan_slices.h"

namespace orrery {

/// When one rank did what in one step.
struct TracedStep {
    int64_t step = 0;
    Interval whole = {};  ///< from the end of the previous step to the end of this one
    Interval data = {};   ///< the part of `whole` that waited for the batch
    StepRecord record = {};
};

/// A traced step of one rank as it is sent to rank 0, with times on rank 0's clock in ns.
struct RankTrace {
    std::string host;
    int64_t clock_error_ns = 0;  ///< max difference between the clock of the rank's host and rank 0's, in ns
    TracedStep traced;           ///< its steady_clock time points are on rank 0's clock
};
std::string encode(const RankTrace& trace);
RankTrace decode_rank_trace(std::string_view text);

/// One rank's slices (named intervals), sorted for a TraceWriter. `origin_ns`: start of the trace on rank 0's clock.
std::vector<TraceSlice> slices_of(PlanSlices& slices, const Plan& plan, int64_t rank, const RankTrace& trace,
                                  int64_t origin_ns);

/// Throws Error if `trace_step` is not a step of a run of `steps` steps; 0 is allowed: the run chooses the step. If
/// `writes`, also throws if this process cannot write `file`.
void check_trace(const std::string& file, int64_t trace_step, int64_t steps, bool writes);

/// Collects all ranks' records of one step of `executor` on rank 0, which writes them as a trace for Perfetto to
/// `file`. The offset of each host's clock is estimated. Collective. Returns lines to print on rank 0; one of them says
/// if the file could not be written, since that does not end the run.
std::vector<std::string> write_step_trace(Session& session, const Executor& executor, const TracedStep& traced,
                                          const std::string& file);

}  // namespace orrery
