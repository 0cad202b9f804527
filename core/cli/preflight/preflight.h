#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "run/preflight/preflight.h"

namespace orrery {

/// What `orrery preflight` is asked.
struct PreflightCommand {
    std::string config;                                    ///< TOML file, as of a run; "" for defaults
    std::vector<std::string> sets;                         ///< "table.key=value", over it
    std::optional<std::string> device, transport, folder;  ///< over run.device, run.transport, run.folder
    std::optional<int64_t> ranks;  ///< of all hosts together; left out: the mesh's, those of a launcher, or 2
    int64_t nodes = 1, node_rank = 0;
    std::string rendezvous;           ///< "host:port", for several nodes
    std::string cluster;              ///< TOML file of configs/clusters that says what the machines do; "": none
    std::vector<std::string> expect;  ///< "fabric_gb_s=50": what the machines are said to do, over the cluster's
    std::optional<double> slow;       ///< of the others' median: less is too slow
    bool quick = false;
    bool json = false;
    std::vector<std::string> arguments;  ///< the whole command line, for the rank processes
};

/// The keys of --expect.
std::vector<std::string> expected_names();
/// Reads "KEY=NUMBER" texts over `figures`. Throws Error naming the text, and the keys there are.
ExpectedFigures read_expected(const std::vector<std::string>& texts, ExpectedFigures figures = {});
/// Key and value of what is expected, "matrix_bf16_tflops" with FLOP/s; 0 where nothing is.
std::vector<std::pair<std::string, double>> named(const ExpectedFigures& figures);

/// Starts the ranks of this host, or is one that a launcher has started; rank 0 prints what was found. Returns 0 when
/// all is fit, 1 when something is not. Throws Error for mistakes of the command, before anything starts.
int preflight_command(const PreflightCommand& command);

/// The report for people: a table of ranks, of links and of collectives, and the verdict with what is named.
std::string preflight_text(const PreflightReport& report);
/// The same for machines: one JSON object, rates in units per second.
std::string preflight_json(const PreflightReport& report);

}  // namespace orrery
