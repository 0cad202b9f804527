#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "plan/cost_table.h"
#include "run/session.h"

namespace orrery {

/// What one rank has counted of the train step, but for the first step of its process.
struct RankCosts {
    std::string host;
    int64_t steps = 0;       ///< that were counted
    double step_s = 0;       ///< of one, with what the host does between two
    double processor_s = 0;  ///< Executor::processor_seconds
    struct Row {
        Executor::Time::Kind kind = Executor::Time::Kind::compute;
        int kernel = none;
        Opcode opcode = Opcode::kernel;
        AxisId axis = none;
        int64_t bytes = 0;
        CallTimes times;  ///< of a collective that ran beside the kernels: while it ran
    };
    std::vector<Row> rows = {};
};
RankCosts costs_of(const Executor& executor);
std::string encode(const RankCosts& costs);
RankCosts decode_rank_costs(std::string_view text);

/// What of it says nothing of the work itself.
struct Untimed {
    std::string kernels;                      ///< why: "they are queued on the device"; "": they are timed
    std::map<std::string, std::string> axes;  ///< by axis, why
};

/// All ranks' as one table: `kernels`, `wires`, `totals`. `transports`: by axis.
CostTable merge_costs(const Plan& plan, const std::vector<RankCosts>& ranks,
                      const std::map<std::string, std::string>& transports, const Untimed& untimed);

/// Brings them to rank 0, which writes the table of the session's train step to `file`. `step_s`: of a step, on this
/// rank, over `steps` of them. Collective. Returns, on rank 0, why the file could not be written; "": it was.
std::string write_run_costs(Session& session, int64_t steps, double step_s, const std::string& file);

}  // namespace orrery
