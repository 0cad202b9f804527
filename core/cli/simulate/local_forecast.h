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

/// A step of a script's plan on the machine at hand, by what was measured there.
struct LocalForecast {
    Simulated run;
    double rest_s = 0;  ///< what a step takes beside: the host between two
    double processors = 1;
    std::map<std::string, std::string> transports;  ///< by axis
    std::vector<std::string> sources;               ///< where the times are from, a line each

    double step_s() const { return run.step_s + rest_s; }
};

/// What the run of a folder has measured; nullopt: it is none, or has written nothing. Throws Error where that cannot
/// be read, and of several hosts.
std::optional<CostTable> measured_by(const std::string& folder);

/// That ranks of this machine share: as `how` supposes, else as the table has them, else those allowed.
double processors_of(const CostTable& plain, const SimulateCommand& how);

/// Ranks of one host, its processors shared. `plain`: of sim/local/local_costs. Of `how` counts who is slow, jitter,
/// links and processors. Throws Error where the table has nothing to price a transport or kernel by.
LocalForecast local_forecast(const Compiled& compiled, const Settings& settings, const CostTable& plain,
                             const SimulateCommand& how);

/// A script or a run's folder as a run on this machine alone would have it.
struct CompiledHere {
    Compiled compiled;
    Settings settings;
    std::map<std::string, std::string> options;  ///< of [script] that the script declares, with what they are here
    std::optional<GivenKey> microbatches;        ///< where the script gives them
    bool host_memory = false;                    ///< DeviceFacts of its device
};
/// Threads of each rank where they are left to a host of so many processors.
int64_t threads_left(int64_t processors, int64_t ranks);

/// The train step alone, without its proof. `processors`: of the host that ran it, 0: of this one. Throws Error as
/// `orrery check` does.
CompiledHere compiled_here(const ScriptCommand& script, int64_t processors);

/// The same, and the table that prices it: what is kept for this machine or named in [simulate] table, over that
/// `how.tables`, over these what the run measured (sim/local/local_costs: but what it did in turns).
struct LocalScript : CompiledHere {
    CostTable plain;
    std::vector<std::string> tables;    ///< where it is from
    std::vector<std::string> notes;     ///< tables of other machines, and what is left out
    std::optional<CostTable> measured;  ///< what the run of the folder wrote
};
/// Throws Error as `orrery check` does, where there is no table at all, and for a link's latency without its rate.
LocalScript local_script(const ScriptCommand& script, const SimulateCommand& how);

/// [simulate] table, which a run is held against; nullopt: none is named. Throws Error at the key where it cannot be
/// read.
std::optional<CostTable> named_table(const Settings& settings, Config& config);

/// The closing lines of a run that has written its costs to `file`: predicted against measured. "" where there is no
/// table to predict by; why not, where it cannot.
std::string closing_comparison(const Compiled& compiled, const Settings& settings, Config& config,
                               const std::string& file);

}  // namespace orrery
