#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cli/commands.h"

namespace orrery {

/// What `orrery scale` is asked, beside the script.
struct ScaleCommand {
    std::string ranks = "1,2,4,8";  ///< sizes, ascending
    std::string axis = "dp";        ///< that grows
    bool strong = false;            ///< the same batch at every size; else it grows with the ranks
    int64_t steps = 20;             ///< of each run; the first quarter is not counted
    int64_t rounds = 1;             ///< of all sizes, one after the other; the median counts
    double target = 0.8;            ///< the efficiency that is wanted
    std::string out;                ///< an .svg file; "": none
    int64_t limit_s = 1800;         ///< longest time of one run
    bool simulate = false;          ///< predict each size; nothing runs, unless `measure`
    bool measure = false;           ///< with `simulate`: run them, too
    SimulateCommand how;            ///< of `simulate`: the cluster ("": this machine), its nodes, tables
};

/// One size of a script, measured or predicted.
struct ScaledRun {
    int64_t ranks = 1, sequences = 0;  ///< of a step
    double tokens_per_s = 0;
    double mfu = 0;  ///< 0: not known
    /// Where rank 0's time went, as parts of it that make 1: "compute", "communication dp", "waiting", "the rest".
    std::map<std::string, double> parts;
    std::vector<std::string> notes;  ///< of the tables that a prediction goes by
};

struct ScaleReport {
    std::string title;       ///< "scripts/gpt.lua, weak scaling over dp"
    bool simulated = false;  ///< `runs` are predictions
    bool strong = false;
    double target = 0.8;
    std::vector<ScaledRun> runs;  ///< the smallest first, which the others are held against
    /// Tokens a second that a simulation expects of each run, for the columns beside; empty: of none.
    std::vector<std::optional<double>> predicted;
    std::vector<std::string> notes;  ///< of the tables that predictions go by

    double speedup(size_t run) const { return runs[run].tokens_per_s / runs.front().tokens_per_s; }
    double efficiency(size_t run) const {
        return speedup(run) * static_cast<double>(runs.front().ranks) / static_cast<double>(runs[run].ranks);
    }
    bool reaches_target() const;
};

/// Runs the script on as many ranks of this host as each size has, in folders that are removed again; prints the
/// table. Returns 0 when the last size reaches the target, 1 when it does not. Throws Error for mistakes before
/// anything is run, and where a run fails. With `simulate` nothing runs unless `measure` asks for it. A stop signal
/// while sizes run ends the run and removes the folders; it then returns 128 + signal.
int scale_command(const ScriptCommand& script, const ScaleCommand& command);

/// Throughput, speed-up, efficiency and what grew against the first size, by points of the time.
std::string scale_text(const ScaleReport& report);
/// The same as a picture: throughput over ranks beside the ideal and the target; below, where the time went.
std::string scale_svg(const ScaleReport& report);

/// A size as it is simulated: `sets` are those of `script` with what the size changes.
ScaledRun simulated_run(const ScriptCommand& script, const ScaleCommand& command);

/// "1,2,4" as sizes. Throws Error unless they are whole, above 0, up to `most` and ascending.
std::vector<int64_t> read_sizes(const std::string& text, int64_t most = 1024);
/// Where the time of a run went, by the text of its run.json, as ScaledRun::parts. Throws Error where that does not say
/// it.
std::map<std::string, double> parts_of_run(const std::string& run_json);

}  // namespace orrery
