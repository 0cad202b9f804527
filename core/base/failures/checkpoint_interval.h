#pragma once

namespace orrery {

/// Times of a job's checkpoints and failures. Failures are random and memoryless, with a constant rate.
struct CheckpointTimes {
    double cost_s = 0;              ///< seconds that one checkpoint blocks training
    double restart_s = 0;           ///< seconds from a failure until the lost work is started again
    double between_failures_s = 0;  ///< mean time between failures of the whole job: a node's divided by the number of
                                    ///< nodes; infinity: none
};

/// Seconds of training between checkpoints that maximize goodput. This is Young's sqrt(2 cost M) (J. W. Young,
/// Communications of the ACM 17 (1974)) with the further terms of Daly's higher-order estimate (J. T. Daly, A higher
/// order estimate of the optimum checkpoint interval for restart dumps, Future Generation Computer Systems 22 (2006),
/// eq. 37). For costs up to M it is at most 0.1 % below the best goodput. Independent of the restart time. Infinity
/// without failures, 0 if checkpoints are free. Throws Error for an invalid time.
double best_checkpoint_interval(const CheckpointTimes& times);

/// Fraction of a job's time, 0 to 1, spent on work that is not lost, with a checkpoint after each `interval_s` of
/// training: interval / (M e^(R/M) (e^((interval + cost) / M) - 1)) (Daly 2006), exact for memoryless failures, which
/// may also strike checkpoints and restarts. Throws Error for an invalid time.
double goodput(const CheckpointTimes& times, double interval_s);

}  // namespace orrery
