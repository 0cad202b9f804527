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

/// What a step costs on a cluster. Shares are of the step's time, means over all ranks; they add up to 1.
struct Prediction {
    int64_t ranks = 1;
    double step_s = 0;
    double tokens_per_s_rank = 0;  ///< 0: the program's inputs are no tokens
    double mfu = 0;                ///< model flops over what the accelerators' dense rate in `rate_of` allows
    std::string rate_of;           ///< "bf16"
    double rate = 0;               ///< of one accelerator, FLOP/s

    double computing = 0;
    std::map<std::string, double> exposed;  ///< by axis: kernels wait while its messages are on their way
    double waiting = 0;                     ///< for other ranks
    int64_t slowest = 0;                    ///< the rank that computes longest
    double slowest_computing = 0;           ///< its share

    int64_t memory_bytes = 0, memory_least = 0;  ///< of the rank that takes most, and of the one that takes least
    int64_t memory_rank = 0;                     ///< the first rank that takes most
    double memory_limit = 0;                     ///< bytes of one accelerator
    double energy_j = 0;                         ///< of a step, all accelerators at rated power; 0: not given
    double price = 0;                            ///< of a step; 0: not given

    double state_bytes = 0;         ///< of a checkpoint: params and optimizer state, each once
    double checkpoint_s = 0;        ///< to write it to the cluster's storage; 0: not given
    double between_failures_s = 0;  ///< of all nodes; 0: not given
    double interval_s = 0;          ///< the best between two checkpoints (base/failures/checkpoint_interval)
    double goodput = 1;
};

/// `precision`: of the matrix products, whose rate MFU is told against. `restart_s`: from a failure until training goes
/// on. Throws Error where the cluster has no rate for it.
Prediction predict(const Compiled& compiled, const Simulated& run, const Cluster& cluster, const Mapping& mapping,
                   const std::string& precision, double restart_s);

/// A few lines for people.
std::string text(const Prediction& prediction, const std::string& title);

/// Throws Error where a rank's arenas are larger than its accelerator's memory, saying by how much.
void require_memory(const Prediction& prediction);

}  // namespace orrery
