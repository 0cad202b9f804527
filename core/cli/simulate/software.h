#pragma once
#include <map>
#include <string>
#include <vector>

#include "run/script_interface.h"
#include "sim/cluster/mapping.h"
#include "sim/predict.h"
#include "sim/software/run.h"

namespace orrery {

/// Reads all files of configs/software, by name. Throws Error at file:line, or if two have the same text in `matches`.
std::vector<SoftwareDefaults> all_software();
/// Reads what --software names: a file of configs/software without its folder and .toml, or a path that ends in .toml.
/// Throws Error naming the files of configs/software, or at file:line.
SoftwareDefaults software_named(const std::string& asked);

/// Fewer published runs give no percentiles of their own.
constexpr int64_t fewest_runs = 8;
/// Returns how far step times were from predictions for published runs of what --software names, by
/// configs/software_errors.toml; if there are fewer than `fewest_runs`, for all published runs.
StepSpread spread_of(const std::string& asked);

/// A plan's job as the software runs it. `precision`: train.precision.
SoftwareRun software_run(const SoftwareDefaults& software, const Plan& plan, const Cluster& cluster,
                         const Mapping& mapping, DType precision);
/// What the software does otherwise than the plan, where the plan is priced as it is: a line each.
std::vector<std::string> differences(const SoftwareRun& run, const Plan& plan, const Host::Options& options);

}  // namespace orrery
