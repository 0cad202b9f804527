#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "compile/compile.h"
#include "sim/cluster/cluster.h"
#include "sim/cluster/mapping.h"
#include "sim/simulate.h"
#include "sim/training_cost.h"

namespace orrery {

/// Where a step's time goes: fractions of the step, means over all ranks.
struct StepShares {
    double computing = 0;
    std::map<std::string, double> exposed;  ///< fraction in which kernels wait for communication, by axis
    double waiting = 0;
};
/// Returns the shares of a simulated step. `step_s`: seconds of the whole step, including what `run` does not simulate.
StepShares shares_of(const Simulated& run, const Mesh& mesh, double step_s);

/// Measured over predicted step time of published training runs, predicted by fits of the constants without them.
struct StepSpread {
    double low = 1, high = 1;  ///< p10 and p90
    int64_t rows = 0;          ///< number of these runs; 0: not known
    std::string software;      ///< they ran this software; "": any
};

/// The cost of a step on a cluster. Shares are fractions of the step's time, means over all ranks, and add up to 1.
struct Prediction : StepShares {
    int64_t ranks = 1;
    double step_s = 0;
    StepSpread spread;
    double tokens_per_s_rank = 0;  ///< tokens per second and rank; 0: the program's inputs are not tokens
    double mfu = 0;                ///< model FLOPs utilization: the model's FLOP/s over the accelerators' dense rate
    double mfu_full = 0;           ///< the same where masked pairs of attention count (MaskedPairs::counted)
    std::string rate_of;           ///< key of the cluster's rate that is the base of MFU: "bf16"
    double rate = 0;               ///< FLOP/s of one accelerator; the mean over ranks if there are several kinds
    bool several_kinds = false;    ///< whether accelerators differ in rate or memory

    int64_t slowest = 0;  ///< the rank that computes longest
    double slowest_computing = 0;

    int64_t memory_bytes = 0;  ///< bytes that rank `memory_rank` needs
    int64_t memory_rank = 0;   ///< the first rank with the smallest amount of accelerator memory left
    double memory_limit = 0;   ///< memory of the accelerator of rank `memory_rank` in bytes
    int64_t memory_least = 0;  ///< smallest number of bytes that a rank needs
    double energy_j = 0;       ///< energy of a step, with all accelerators at rated power; 0: unknown
    double price = 0;          ///< price of a step; 0: unknown

    double state_bytes = 0;         ///< bytes of a checkpoint: params and optimizer state, each stored once
    double checkpoint_s = 0;        ///< seconds to write a checkpoint to the cluster's storage; 0: unknown
    double restore_s = 0;           ///< seconds to read a checkpoint after a failure; 0: unknown
    double between_failures_s = 0;  ///< mean time between failures of any node; 0: unknown
    double interval_s = 0;          ///< best time between checkpoints (base/failures/checkpoint_interval.h)
    double goodput = 1;
};

/// Mean dense rate in `precision` of the accelerators of the first `ranks` slots, FLOP/s. Throws Error if one of these
/// accelerators does not support the type.
double mean_rate(const Cluster& cluster, int64_t ranks, const std::string& precision);

/// Price per second of the accelerators of the first `ranks` slots; 0: unknown, because one of them has no price.
double price_per_s(const Cluster& cluster, int64_t ranks);

/// Predicts the cost of a step. `precision`: type of the matrix products, whose dense rate is the base of MFU.
/// `restart_s`: seconds from a failure until the checkpoint is read. `memory`: bytes that ranks need, by class of the
/// train step; empty: the plan's arenas. Throws Error if the cluster lacks the type's rate.
Prediction predict(const Compiled& compiled, const Simulated& run, const Cluster& cluster, const Mapping& mapping,
                   const std::string& precision, double restart_s, const std::vector<int64_t>& memory = {});

/// The terms of training on `tokens` tokens with this step.
TrainingTerms terms_of(const Prediction& prediction, double tokens);

/// "57 published runs of nemo".
std::string text(const StepSpread& spread);
std::string text(const Prediction& prediction, const std::string& title);

/// Throws Error if what a rank needs exceeds its accelerator's memory, saying by how much.
void require_memory(const Prediction& prediction);

}  // namespace orrery
