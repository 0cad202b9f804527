#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "run/session.h"
#include "trace/plan_slices.h"

namespace orrery {

/// One step of one rank, as it was.
struct TracedStep {
    int64_t step = 0;
    Interval whole = {};  ///< from the end of the step before it, with what the host did in between
    Interval data = {};   ///< of that: waiting for the batch
    StepRecord record = {};
};

/// The same as a rank sends it, with its times in ns on rank 0's clock.
struct RankTrace {
    std::string host;
    int64_t clock_error_ns = 0;  ///< how far the clock of its host may be from rank 0's
    TracedStep traced;           ///< its steady_clock's time points hold rank 0's time
};
std::string encode(const RankTrace& trace);
RankTrace decode_rank_trace(std::string_view text);

/// The slices of one rank, in the order in which a TraceWriter takes them. `origin_ns`: of rank 0's clock, when the
/// trace begins.
std::vector<TraceSlice> slices_of(PlanSlices& slices, const Plan& plan, int64_t rank, const RankTrace& trace,
                                  int64_t origin_ns);

/// Throws Error where a run of `steps` has no step of that number (0: it chooses one), or, `writes`, where the file
/// cannot be written.
void check_trace(const std::string& file, int64_t trace_step, int64_t steps, bool writes);

/// Brings what all ranks have recorded of a step of `executor` to rank 0, which writes it to `file` for Perfetto. Of
/// hosts with other clocks it estimates how far these are apart. Collective. Returns lines to say, on rank 0: also why
/// the file could not be written, which is no reason to end a run.
std::vector<std::string> write_step_trace(Session& session, const Executor& executor, const TracedStep& traced,
                                          const std::string& file);

}  // namespace orrery
