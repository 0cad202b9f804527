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

/// One simulated step of a script's plan on a cluster.
struct Forecast {
    Compiled compiled;
    Simulated run;
    Prediction prediction;
    std::string mapping;                         ///< placement of ranks
    int64_t cut = 0, cut_of = 0;                 ///< tp collectives that --tp-chunks split, and all of them
    std::map<std::string, std::string> options;  ///< [script] options that the script declares, with their values
    std::optional<GivenKey> microbatches;        ///< set if the script gives them
};

/// Reads a cluster's file; the file name is the default name. `nodes`: number of nodes of its only kind, 0: as in the
/// file. Throws Error with the place.
Cluster read_cluster(const std::string& file, int64_t nodes);

/// Parses --slow's "RANK:TIMES". Throws Error for invalid texts.
std::map<int64_t, double> slow_ranks(const std::vector<std::string>& given, int64_t ranks);

/// Compiles the script for the cluster's transports and simulates one train step. Throws Error as `orrery check` does,
/// and if the mesh has more ranks than the cluster has accelerators.
Forecast forecast(const ScriptCommand& script, const Cluster& cluster, const SimulateCommand& command);

}  // namespace orrery
