#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "run/preflight/preflight.h"

namespace orrery {

struct PreflightCommand {
    std::string config;                                    ///< TOML file, as for a run; "": defaults
    std::vector<std::string> sets;                         ///< "table.key=value", overriding the TOML file
    std::optional<std::string> device, transport, folder;  ///< override run.device, run.transport, run.folder
    std::optional<int64_t> ranks;  ///< number of ranks on all hosts; unset: from the mesh, a launcher, or 2
    int64_t nodes = 1, node_rank = 0;
    std::string rendezvous;           ///< "host:port", for several nodes
    std::string cluster;              ///< TOML file of configs/clusters with the expected figures; "": none
    std::vector<std::string> expect;  ///< "fabric_gb_s=50": expected figures, overriding the cluster's
    std::optional<double> slow;  ///< a rank whose figure is below this fraction of the other ranks' median is too slow
    bool quick = false;
    bool json = false;
    std::vector<std::string> arguments;  ///< the whole command line, repeated for the rank processes
};

std::vector<std::string> expected_names();
/// Reads "KEY=NUMBER" texts into `figures`. Throws Error naming the text and the known keys.
ExpectedFigures read_expected(const std::vector<std::string>& texts, ExpectedFigures figures = {});
/// Returns expected figures as keys and values in units per second: "matrix_bf16_tflops" in FLOP/s; 0 if unknown.
std::vector<std::pair<std::string, double>> named(const ExpectedFigures& figures);

/// Runs `orrery preflight`: starts this host's ranks, or is one that a launcher started; rank 0 prints the report.
/// Returns 0 if all ranks are fit, otherwise 1. Throws Error for invalid flags before anything starts.
int preflight_command(const PreflightCommand& command);

std::string preflight_text(const PreflightReport& report);
std::string preflight_json(const PreflightReport& report);

}  // namespace orrery
