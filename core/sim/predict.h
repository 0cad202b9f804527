#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "compile/compile.h"
#include "sim/cluster/cluster.h"
#include "sim/cluster/mapping.h"
#include "sim/simulate.h"

namespace orrery {

/// Where a step's time goes: shares of it, means over all ranks.
struct StepShares {
    double computing = 0;
    std::map<std::string, double> exposed;  ///< by axis: kernels wait while its messages are on their way
    double waiting = 0;                     ///< for other ranks
};
/// `step_s`: of the whole step, with what `run` does not play.
StepShares shares_of(const Simulated& run, const Mesh& mesh, double step_s);

/// What a step costs on a cluster. Shares are of the step's time, means over all ranks; they add up to 1.
struct Prediction : StepShares {
    int64_t ranks = 1;
    double step_s = 0;
    double tokens_per_s_rank = 0;  ///< 0: the program's inputs are no tokens
    double mfu = 0;                ///< model flops over what the accelerators' dense rates in `rate_of` allow together
    std::string rate_of;           ///< "bf16"
    double rate = 0;               ///< of one accelerator, FLOP/s; of several kinds the mean over ranks
    bool several_kinds = false;    ///< whose rate or memory differ

    int64_t slowest = 0;           ///< the rank that computes longest
    double slowest_computing = 0;  ///< its share

    int64_t memory_bytes = 0;  ///< of the rank whose accelerator has least left beside it: the one that takes most
    int64_t memory_rank = 0;   ///< the first such rank
    double memory_limit = 0;   ///< bytes of its accelerator
    int64_t memory_least = 0;  ///< of the rank that takes least
    double energy_j = 0;       ///< of a step, all accelerators at rated power; 0: not given
    double price = 0;          ///< of a step; 0: not given

    double state_bytes = 0;         ///< of a checkpoint: params and optimizer state, each once
    double checkpoint_s = 0;        ///< to write it to the cluster's storage; 0: not given
    double restore_s = 0;           ///< to read it again after a failure; 0: not given
    double between_failures_s = 0;  ///< of all nodes; 0: not given
    double interval_s = 0;          ///< the best between two checkpoints (base/failures/checkpoint_interval)
    double goodput = 1;
};

/// Dense rate in `precision` of the accelerators of the first `ranks` slots: the mean, FLOP/s. Throws Error where one
/// of them has none.
double mean_rate(const Cluster& cluster, int64_t ranks, const std::string& precision);

/// `precision`: of the matrix products, whose rate MFU is told against. `restart_s`: from a failure until the
/// checkpoint is read. Throws Error where the cluster has no rate for it.
Prediction predict(const Compiled& compiled, const Simulated& run, const Cluster& cluster, const Mapping& mapping,
                   const std::string& precision, double restart_s);

/// A few lines for people.
std::string text(const Prediction& prediction, const std::string& title);

/// Throws Error where a rank's arenas are larger than its accelerator's memory, saying by how much.
void require_memory(const Prediction& prediction);

}  // namespace orrery
