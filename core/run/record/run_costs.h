#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "plan/cost_table.h"
#include "run/session.h"

namespace orrery {

/// Times that one rank measured for the train step, except for the first step of its executor.
struct RankCosts {
    std::string host;
    int64_t steps = 0;
    double step_s = 0;       ///< mean step time in seconds, including host work between steps
    double processor_s = 0;  ///< processor time of kernels: Executor::processor_seconds
    struct Row {
        Executor::Time::Kind kind = Executor::Time::Kind::compute;
        int kernel = none;
        Opcode opcode = Opcode::kernel;
        AxisId axis = none;
        int64_t bytes = 0;
        CallTimes times;  ///< times of the calls; for a collective that ran alongside kernels, its duration
    };
    std::vector<Row> rows = {};
};
RankCosts costs_of(const Executor& executor);
std::string encode(const RankCosts& costs);
RankCosts decode_rank_costs(std::string_view text);

/// Says which parts of a step could not be timed, and why.
struct Untimed {
    std::string kernels;                      ///< why kernels are not timed, "they are queued on the device"; "": they
                                              ///< were timed
    std::map<std::string, std::string> axes;  ///< by axis: why its collectives are not timed
};

/// Merges the times of all ranks into one cost table: kernels, collectives and totals. `transports`: names by axis.
CostTable merge_costs(const Plan& plan, const std::vector<RankCosts>& ranks,
                      const std::map<std::string, std::string>& transports, const Untimed& untimed);

/// Collects all ranks' times of the train step on rank 0, which writes them as a cost table to `file`. `step_s`: mean
/// step time on this rank over `steps` steps, in seconds. Collective. Returns on rank 0 why the file could not be
/// written; "" on success.
std::string write_run_costs(Session& session, int64_t steps, double step_s, const std::string& file);

}  // namespace orrery
