#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "plan/cost_table.h"
#include "run/session.h"

namespace orrery {

/// Costs that one rank measured for the train step, without the first step of its process.
struct RankCosts {
    std::string host;
    int64_t steps = 0;       ///< number of steps measured
    double step_s = 0;       ///< mean step time, including host work between steps
    double processor_s = 0;  ///< Executor::processor_seconds
    struct Row {
        Executor::Time::Kind kind = Executor::Time::Kind::compute;
        int kernel = none;
        Opcode opcode = Opcode::kernel;
        AxisId axis = none;
        int64_t bytes = 0;
        CallTimes times;  ///< for a collective that ran alongside kernels: how long it ran
    };
    std::vector<Row> rows = {};
};
RankCosts costs_of(const Executor& executor);
std::string encode(const RankCosts& costs);
RankCosts decode_rank_costs(std::string_view text);

/// Names the parts of the step that could not be timed.
struct Untimed {
    std::string kernels;                      ///< why kernels are not timed, "they are queued on the device"; "": they
                                              ///< are
    std::map<std::string, std::string> axes;  ///< why an axis' collectives are not timed, by axis
};

/// Merges all ranks' costs into one table: `kernels`, `wires`, `totals`. `transports`: the transport of each axis.
CostTable merge_costs(const Plan& plan, const std::vector<RankCosts>& ranks,
                      const std::map<std::string, std::string>& transports, const Untimed& untimed);

/// Collects all ranks' costs on rank 0, which writes the table of the session's train step to `file`. `step_s`: mean
/// step time on this rank over `steps` steps. Collective. Returns on rank 0 why the file could not be written; "" on
/// success.
std::string write_run_costs(Session& session, int64_t steps, double step_s, const std::string& file);

}  // namespace orrery
