#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "compile/compile.h"
#include "plan/cost_table.h"
#include "run/script_interface.h"
#include "run/settings.h"
#include "sim/local/compare.h"
#include "sim/simulate.h"

namespace orrery {

/// One simulated step of a script's plan on this machine, from measured costs.
struct LocalForecast {
    Simulated run;
    double rest_s = 0;  ///< time of a step that is not simulated: the host between two steps
    double processors = 1;
    std::map<std::string, std::string> transports;  ///< names of transports, by axis
    std::vector<std::string> sources;               ///< where the times come from, a line each

    double step_s() const { return run.step_s + rest_s; }
};

/// The costs that the run of a folder has measured; nullopt: not a run, or nothing was written. Throws Error if they
/// cannot be read, or are of several hosts.
std::optional<CostTable> measured_by(const std::string& folder);

/// Number of processors that the ranks share: from `how`, else from the table, else the allowed ones.
double processors_of(const CostTable& plain, const SimulateCommand& how);

/// Simulates the ranks of one host with shared processors. `plain`: see sim/local/local_costs. Of `how` it uses slow
/// ranks, jitter, links and processors. Throws Error if the table cannot price a transport or kernel.
LocalForecast local_forecast(const Compiled& compiled, const Settings& settings, const CostTable& plain,
                             const SimulateCommand& how);

/// A script or a run's folder compiled for a run on this machine alone.
struct CompiledHere {
    Compiled compiled;
    Settings settings;
    std::map<std::string, std::string> options;  ///< [script] options that the script declares, with their values
    std::optional<GivenKey> microbatches;        ///< set if the script gives them
    bool host_memory = false;                    ///< tensors are in host memory, from the device's DeviceFacts
};
/// Threads per rank, if the configuration leaves them to a host with this many processors.
int64_t threads_left(int64_t processors, int64_t ranks);

/// Compiles the train step only, without proof. `processors`: of the host that ran the script; 0: this host. Throws
/// Error as `orrery check` does.
CompiledHere compiled_here(const ScriptCommand& script, int64_t processors);

/// A compiled script with its cost table: the cached one of this machine or that of [simulate] table, overridden by
/// `how.tables`, overridden by the run's measurements (sim/local/local_costs: those without shared processors).
struct LocalScript : CompiledHere {
    CostTable plain;
    std::vector<std::string> tables;    ///< files of the cost table
    std::vector<std::string> notes;     ///< about tables of other machines, and what was not used
    std::optional<CostTable> measured;  ///< costs measured by the run of the folder; nullopt: none
};
/// Compiles the script and reads its cost table. Throws Error as `orrery check` does, if there is no table at all, and
/// for a link's latency without a rate.
LocalScript local_script(const ScriptCommand& script, const SimulateCommand& how);

/// The table of [simulate] table, with which a run is compared; nullopt: none. Throws Error at the key.
std::optional<CostTable> named_table(const Settings& settings, Config& config);

/// The closing lines of a run that wrote its costs to `file`: predicted against measured times. "" if there is no table
/// to predict from; the reason if the prediction fails.
std::string closing_comparison(const Compiled& compiled, const Settings& settings, Config& config,
                               const std::string& file);

}  // namespace orrery
