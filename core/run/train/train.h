#pragma once
#include <functional>
#include <string>

#include "run/checkpoint/checkpoint.h"
#include "run/data/input_feed.h"
#include "run/script_interface.h"
#include "run/train/metrics.h"
#include "run/train/step_programs.h"

namespace orrery {

/// Everything a training run needs besides its session.
struct TrainingRun {
    Session& session;
    CheckpointStore& store;
    MetricsWriter* metrics = nullptr;  ///< rank 0 only
    Dataset data;
    TrainOptions options;
    uint64_t seed = 1;
    int64_t keep = 2;               ///< verified checkpoints that stay
    std::string weights;            ///< safetensors file of a fresh start, "": random weights
    PublishedWeights sources = {};  ///< where each param lies in it
    /// Makes the steps of a ramp that the session was not compiled with; on a thread of its own.
    StepPrograms::Compile compile = {};
    std::string trace = {};  ///< file of a traced step, written by rank 0; "": none is
    int64_t trace_step = 0;  ///< 0: the tenth of this start, or its last
    std::string costs = {};  ///< file of what the steps took, written by rank 0 at the end; "": none
    /// On rank 0, once `costs` is written: what else there is to say of it at the end.
    std::function<std::string()> close = {};
};

/// Resumes from the newest verified checkpoint or starts anew, trains to options.steps, evaluates, commits and reads
/// back the last checkpoint. SIGTERM and SIGUSR1 commit a checkpoint at a step that all ranks agree on and throw
/// Fault::requeue. Collective.
void train(const TrainingRun& run);

}  // namespace orrery
