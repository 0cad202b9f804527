#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/json_fwd.h"
#include "cli/commands.h"
#include "compile/compile.h"
#include "plan/cost_table.h"
#include "run/script_interface.h"
#include "sim/predict.h"
#include "sim/round_times.h"
#include "sim/software/expert_loads.h"

namespace orrery {

class ScriptRunner;

struct Forecast {
    Compiled compiled;
    Simulated run;  ///< of priced_step; its times are those of a mean step of the round
    RoundTimes round;
    Prediction prediction;
    std::string mapping;                   ///< how ranks are placed on the cluster
    int64_t cut = 0, cut_of = 0;           ///< number of tp collectives that --tp-chunks splits, and number of all
    std::string software;                  ///< name of the software that runs the step
    std::vector<std::string> differences;  ///< what this software does otherwise than the simulated plan, to print
    std::string loads;                     ///< report's line on the load of experts; "": --imbalance is not given
    Host::Options options;                 ///< [script] options that the script declares, with their values
    std::optional<GivenKey> microbatches;  ///< the script's value of train.microbatches, if it sets the key itself
    std::vector<std::string> sources;      ///< where the times of kernels come from; empty: all from formulas
    Program recorded;                      ///< the train step before it is distributed
};

/// Kernel times measured on an accelerator of a cluster, of the files of --table.
struct MeasuredKernels {
    CostTable table;                 ///< plain (sim/local/local_costs)
    std::vector<std::string> notes;  ///< the files, and what is to be known about them, to print
};
/// Reads the tables of `command`; nullopt: it has none. Throws Error if no accelerator of the cluster is the measured
/// one, or if other software than orrery is to be predicted.
std::optional<MeasuredKernels> measured_kernels(const Cluster& cluster, const SimulateCommand& command);

/// What training on the tokens of `terms` takes, as JSON: steps, days, price and goodput, null where unknown.
Json training_json(const TrainingTerms& terms, double step_s);

/// Reads a cluster's file, which also names the cluster unless it has a name. `nodes`: number of nodes of the only
/// kind; 0: as in the file. Throws Error with line and column.
Cluster read_cluster(const std::string& file, int64_t nodes);

/// Parses texts "RANK:TIMES" of --slow to factors on the time of kernels, by rank. Throws Error for invalid texts.
std::map<int64_t, double> slow_ranks(const std::vector<std::string>& given, int64_t ranks);

/// Compiles an experiment for a prediction (ScriptUse::compile): a train step with capacities (o.capacity) also with
/// the smallest. Throws Error as ScriptRunner::compile_whole does.
void compile_priced(ScriptRunner& script, Experiment experiment);
/// The train step of which predictions give the time: of the full batch, with the smallest capacity if it is compiled.
/// A run takes a larger one for a step only if this one overflows. Memory is that of all programs.
const Plan& priced_step(const Compiled& compiled, size_t program = 0);
/// Says of which capacities time and memory are, to print; "": the step has no choice of capacities.
std::string priced_text(const Compiled& compiled);
/// The same as a line of a report.
std::string capacity_line(const Compiled& compiled);

/// The plan with the load of experts that --imbalance asks for; nullopt: it is not given. Throws Error if the plan has
/// no experts.
std::optional<ExpertLoads> loads_of(const Plan& plan, const SimulateCommand& command);
/// The report's line on these loads, which make the simulated step hypothetical; "" for nullopt.
std::string text_of(const std::optional<ExpertLoads>& loads, const SimulateCommand& command);

/// Compiles the script for the cluster's transports and simulates one train step. Throws Error as `orrery check` does,
/// and if the mesh has more ranks than the cluster has accelerators.
/// `measured`: result of measured_kernels; nullptr: none.
Forecast forecast(const ScriptCommand& script, const Cluster& cluster, const SimulateCommand& command,
                  const MeasuredKernels* measured = nullptr);

}  // namespace orrery
