#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "compile/compile.h"
#include "plan/cost_table.h"
#include "run/settings.h"
#include "sim/local/compare.h"
#include "sim/simulate.h"

namespace orrery {

/// A step of a script's plan on the machine at hand, by what was measured there.
struct LocalForecast {
    Simulated run;
    double rest_s = 0;  ///< what a step takes beside: the host between two
    double processors = 1;
    std::map<std::string, std::string> transports;  ///< by axis
    std::vector<std::string> sources;               ///< where the times are from, a line each

    double step_s() const { return run.step_s + rest_s; }
};

/// Ranks of one host, its processors shared. `plain`: of sim/local/local_costs. Of `how` counts who is slow, jitter,
/// links and processors. Throws Error where the table has nothing to price a transport or kernel by.
LocalForecast local_forecast(const Compiled& compiled, const Settings& settings, const CostTable& plain,
                             const SimulateCommand& how);

/// A script or a run's folder, compiled for this machine, and the table that prices it: what is kept for this machine
/// or named in [simulate] table, over that `how.tables`, over these what the run measured.
struct LocalScript {
    Compiled compiled;
    Settings settings;
    CostTable plain;
    std::vector<std::string> tables;    ///< where it is from
    std::optional<CostTable> measured;  ///< what the run of the folder wrote
};
/// Throws Error as `orrery check` does, and where there is no table at all.
LocalScript local_script(const ScriptCommand& script, const SimulateCommand& how);

/// [simulate] table, which a run is held against; nullopt: none is named. Throws Error at the key where it cannot be
/// read.
std::optional<CostTable> named_table(const Settings& settings, Config& config);

/// The closing lines of a run that has written its costs to `file`: predicted against measured. "" where there is no
/// table to predict by; why not, where it cannot.
std::string closing_comparison(const Compiled& compiled, const Settings& settings, Config& config,
                               const std::string& file);

}  // namespace orrery
