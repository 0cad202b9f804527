#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "run/session.h"
#include "trace/plan_slices.h"

namespace orrery {

/// The recorded times of one step of one rank.
struct TracedStep {
    int64_t step = 0;
    Interval whole = {};  ///< time from the end of the previous step to the end of this one
    Interval data = {};   ///< the part of `whole` that waited for the batch
    StepRecord record = {};
};

/// A traced step as it is sent to rank 0, with its times on rank 0's clock in ns.
struct RankTrace {
    std::string host;
    int64_t clock_error_ns = 0;  ///< max difference between its host's clock and rank 0's
    TracedStep traced;           ///< its steady_clock time points hold rank 0's time
};
std::string encode(const RankTrace& trace);
RankTrace decode_rank_trace(std::string_view text);

/// The slices of one rank, in the order that a TraceWriter expects. `origin_ns`: start of the trace on rank 0's clock.
std::vector<TraceSlice> slices_of(PlanSlices& slices, const Plan& plan, int64_t rank, const RankTrace& trace,
                                  int64_t origin_ns);

/// Throws Error if a run of `steps` steps has no step `trace_step` (0: chosen automatically). If `writes`, also throws
/// if the file cannot be written.
void check_trace(const std::string& file, int64_t trace_step, int64_t steps, bool writes);

/// Collects the records of one step of `executor` on rank 0, which writes them to `file` for Perfetto. The offset of
/// each host's clock is estimated. Collective. Returns lines to print on rank 0; a failure to write the file is one of
/// them, since it does not end the run.
std::vector<std::string> write_step_trace(Session& session, const Executor& executor, const TracedStep& traced,
                                          const std::string& file);

}  // namespace orrery
