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
#include "sim/round_times.h"
#include "sim/simulate.h"

namespace orrery {

struct LocalForecast {
    Simulated run;      ///< of priced_step; its times are those of a mean step of the round
    RoundTimes round;
    double rest_s = 0;  ///< seconds of other work between two steps, which is not simulated
    double processors = 1;
    std::map<std::string, std::string> transports;  ///< names of the transports, by axis
    std::string loads;                              ///< report's line on the load of experts; "": as compiled
    std::vector<std::string> sources;               ///< where the costs come from, a line each, to print

    double step_s() const { return run.step_s + rest_s; }
};

/// Returns the costs that the run of a folder has measured; nullopt if it is not a run's or has none. Throws Error if
/// the costs cannot be read, or are of several hosts.
std::optional<CostTable> measured_by(const std::string& folder);

/// Number of processors that ranks share: that of `how`, else that of the cost table, else of those allowed here.
double processors_of(const CostTable& plain, const SimulateCommand& how);

/// Simulates ranks that share this host's processors. `plain`: costs without sharing (sim/local/local_costs). Of `how`,
/// uses slow ranks, jitter, links and processors. Throws Error if `plain` lacks a transport or kernel.
LocalForecast local_forecast(const Compiled& compiled, const Settings& settings, const CostTable& plain,
                             const SimulateCommand& how);

/// A script or a run's folder compiled for a run on this machine alone.
struct CompiledHere {
    Compiled compiled;
    Settings settings;
    Host::Options options;                 ///< [script] options that the script declares, with their values
    std::optional<GivenKey> microbatches;  ///< the script's value of train.microbatches, if it sets the key itself
    bool host_memory = false;              ///< whether the device has its tensors in host memory
    Program recorded;                      ///< the train step before it is distributed
};
/// Threads per rank if the configuration does not set them, on a host with `processors` processors.
int64_t threads_left(int64_t processors, int64_t ranks);

/// Compiles only the train step (compile_priced), without proof. `processors`: number of processors of the host that
/// ran the script; 0: of this host. Throws Error as `orrery check` does.
CompiledHere compiled_here(const ScriptCommand& script, int64_t processors);

/// A compiled script, and costs to simulate it. Costs of this machine's cache or of simulate.table are overridden by
/// `how.tables`, and these by what the run has measured, if it does not depend on shared processors.
struct LocalScript : CompiledHere {
    CostTable plain;
    std::vector<std::string> tables;  ///< names of the files with the costs, to print
    std::vector<std::string> notes;   ///< notes about cost tables that are of other machines or were not used, to print
    std::optional<CostTable> measured;  ///< costs that the run in the folder has measured; nullopt: none
};
/// Compiles the script and reads its costs. Throws Error as `orrery check` does, if there are no costs at all, and for
/// a link's latency without a rate.
LocalScript local_script(const ScriptCommand& script, const SimulateCommand& how);

/// Returns the cost table that simulate.table names; nullopt: none. Throws Error at the key if it cannot be read.
std::optional<CostTable> named_table(const Settings& settings, Config& config);

/// Returns a comparison of predicted and measured times, to print at the end of a run that wrote its costs to `file`.
/// If the prediction fails, returns the reason; "" if there are no costs to predict from.
std::string closing_comparison(const Compiled& compiled, const Settings& settings, Config& config,
                               const std::string& file);

}  // namespace orrery
