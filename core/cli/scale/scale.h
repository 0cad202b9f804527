#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "orrery/error.h"

namespace orrery {

struct ScaleCommand {
    std::string ranks = "1,2,4,8";  ///< numbers of ranks to run with, ascending
    std::string axis = "dp";        ///< name of the mesh axis that grows with the ranks
    bool strong = false;            ///< true: all runs have the same batch; false: the batch grows with the ranks
    int64_t steps = 20;             ///< number of steps of each run; the first quarter is not counted
    int64_t rounds = 1;             ///< repetitions of each run; the one with the median throughput counts
    double target = 0.8;            ///< required efficiency of the largest run
    std::string out;
    int64_t limit_s = 1800;  ///< max duration of one run
    bool simulate = false;   ///< predict the result of each size; run it only with `measure`
    bool measure = false;    ///< with `simulate`: run each size as well
    SimulateCommand how;     ///< for `simulate`: the cluster ("": this machine), its nodes and tables
};

struct ScaledRun {
    int64_t ranks = 1, sequences = 0;  ///< number of ranks; number of sequences per step
    double throughput = 0;             ///< per second, on all ranks
    double mfu = 0;                    ///< model FLOP/s utilization; 0: unknown
    /// Shares of rank 0's time, which add up to 1: "compute", "communication dp", "waiting", "the rest".
    std::map<std::string, double> parts;
    std::vector<std::string> notes;  ///< notes about the cost tables of a prediction, to print
    bool tokens = true;              ///< throughput counts tokens; false: samples, the script's inputs are not tokens

    std::string unit() const { return tokens ? "tokens" : "samples"; }
};

struct ScaleReport {
    std::string title;       ///< "scripts/gpt.lua, weak scaling over dp"
    bool simulated = false;  ///< true: `runs` are predictions, not measurements
    bool strong = false;
    double target = 0.8;
    std::vector<ScaledRun> runs;  ///< ascending by ranks; the first is the baseline of speed-ups
    /// Predicted throughput of each run, for additional columns; empty: none.
    std::vector<std::optional<double>> predicted;
    std::vector<std::string> notes;     ///< notes about the cost tables of the predictions, to print
    std::vector<std::string> left_out;  ///< sizes that cannot be simulated, and why: "64 ranks: out of memory ..."
    bool largest_left_out = false;      ///< the largest size is not in `runs`
    bool smallest_left_out = false;     ///< nor is the smallest, so that speed-ups are over a larger one

    double speedup(size_t run) const { return runs[run].throughput / runs.front().throughput; }
    double efficiency(size_t run) const {
        return speedup(run) * static_cast<double>(runs.front().ranks) / static_cast<double>(runs[run].ranks);
    }
    /// ", speed-up and efficiency over 8 ranks" if the smallest size was left out; otherwise "".
    std::string baseline_text() const;
    /// Whether the largest size reaches the target; false if it was left out.
    bool reaches_target() const;
};

/// Runs the script with each number of ranks on this host, in temporary folders, and prints the table. Returns 0 if the
/// largest run reaches the target, otherwise 1. Throws Error for invalid flags before anything runs, and if a run
/// fails. Sizes that cannot be simulated are named, and left out of the table; if none can, throws Error: that of the
/// script, if it is the same for all sizes. With `simulate`, nothing runs unless `measure` is set, and a size that
/// cannot be compiled does not. A stop signal ends the current run, removes the folders and returns 128 + signal.
int scale_command(const ScriptCommand& script, const ScaleCommand& command);

/// Returns a table of throughput, speed-up and efficiency, and of parts of a step that grew, in percentage points.
std::string scale_text(const ScaleReport& report);
/// Draws the report as SVG: throughput over ranks with the ideal and the target; below it, how a step's time is spent.
std::string scale_svg(const ScaleReport& report);

/// A run can be compiled, but there are no costs to predict its time with.
struct NotPriced : Error {
    using Error::Error;
};

/// Simulates a run; the settings of `script` determine its mesh and batch of `sequences`. Throws NotPriced, or
/// Error if it does not compile, for example because it does not fit in memory.
ScaledRun simulated_run(const ScriptCommand& script, const ScaleCommand& command, int64_t sequences);

/// Parses "1,2,4". Throws Error unless the sizes are whole, above 0, at most `most` and ascending.
std::vector<int64_t> read_sizes(const std::string& text, int64_t most = 1024);
/// Returns ScaledRun::parts from the text of a run.json. Throws Error if it has no breakdown of time.
std::map<std::string, double> parts_of_run(const std::string& run_json);

}  // namespace orrery
