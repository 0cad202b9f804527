#pragma once

namespace orrery {

/// What checkpoints and failures cost a job. Failures come by chance, without memory, at a constant rate.
struct CheckpointTimes {
    double cost_s = 0;              ///< that training stands still for one checkpoint
    double restart_s = 0;           ///< from a failure until the lost work is begun again
    double between_failures_s = 0;  ///< mean, of the whole job: a node's over the number of nodes; infinity: none
};

/// Seconds of training between two checkpoints with which a job gets most done: Young's sqrt(2 cost M) (J. W. Young,
/// Communications of the ACM 17 (1974)) with the further terms of Daly's higher-order estimate (J. T. Daly, A higher
/// order estimate of the optimum checkpoint interval for restart dumps, Future Generation Computer Systems 22 (2006),
/// eq. 37), at most 0.1 % below the best goodput for costs up to M. Does not depend on the restart. Infinity without
/// failures, 0 when checkpoints are free. Throws Error for a time that cannot be.
double best_checkpoint_interval(const CheckpointTimes& times);

/// The part of a job's time, 0 to 1, that goes into work that is kept, with a checkpoint after each `interval_s` of
/// training: interval / (M e^(R/M) (e^((interval + cost) / M) - 1)) (Daly 2006), exact for such failures. They strike
/// checkpoints and restarts, too. Throws Error for a time that cannot be.
double goodput(const CheckpointTimes& times, double interval_s);

}  // namespace orrery
