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
/// p10 and p90 of measured / predicted step time of that software's published runs; of all published runs if it has
/// fewer than `fewest_runs`. Throws Error at file:line of configs/software_errors.toml.
StepSpread spread_of(const std::string& asked);

/// A plan's job as the software runs it. `precision`: train.precision.
SoftwareRun software_run(const SoftwareDefaults& software, const Plan& plan, const Cluster& cluster,
                         const Mapping& mapping, DType precision);
/// Differences between the software and the priced plan, a line each.
std::vector<std::string> differences(const SoftwareRun& run, const Plan& plan, const Host::Options& options);

}  // namespace orrery
