#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "compile/compile.h"
#include "run/script_interface.h"
#include "sim/predict.h"

namespace orrery {

/// One step of a script's plan, played on a cluster that is not here.
struct Forecast {
    Compiled compiled;
    Simulated run;
    Prediction prediction;
    std::string mapping;                         ///< which rank sits where
    int64_t cut = 0, cut_of = 0;                 ///< collectives of tp that --tp-chunks cut, and all of them
    std::map<std::string, std::string> options;  ///< of [script] that the script declares, with what they are here
    std::optional<GivenKey> microbatches;        ///< where the script gives them
};

/// A cluster's file, whose name is the cluster's where it says none; `nodes`: of its one kind, 0: as many as the file
/// says. Throws Error with its place.
Cluster read_cluster(const std::string& file, int64_t nodes);

/// "RANK:TIMES", as --slow has them. Throws Error for what is none.
std::map<int64_t, double> slow_ranks(const std::vector<std::string>& given, int64_t ranks);

/// Compiles the script for the cluster's transports and plays one train step. Throws Error as `orrery check` does, and
/// where the mesh has more ranks than the cluster accelerators.
Forecast forecast(const ScriptCommand& script, const Cluster& cluster, const SimulateCommand& command);

}  // namespace orrery
