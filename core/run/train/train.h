#pragma once
#include <functional>
#include <string>

#include "base/json_fwd.h"
#include "run/checkpoint/save/checkpoints.h"
#include "run/checkpoint/save/nonfinite.h"
#include "run/data/input_feed.h"
#include "run/metrics/metrics.h"
#include "run/script_interface.h"
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
    RetentionPolicy keep = {};      ///< which checkpoints stay
    std::string weights;            ///< safetensors file or folder of a fresh start, "": random weights
    PublishedWeights sources = {};  ///< where each param lies in it
    std::string published = {};     ///< on rank 0: what each manifest keeps for exports; "": nothing
    int64_t from_step = -1;         ///< to go on from; -1: the newest good one
    /// On rank 0, once the state to go on from is accepted, and before anything in the folder changes.
    std::function<void()> accepted = {};
    std::string trace = {};  ///< file of a traced step, written by rank 0; "": none is
    int64_t trace_step = 0;  ///< 0: the tenth of this start, or its last
    double grace_s = 0;      ///< from a request to stop to the end of the machine; 0: nobody has said
    std::string costs = {};  ///< file of what the steps took, written by rank 0 at the end; "": none
    /// On every rank: the step that it goes on from, once its state is there; each that it has finished.
    std::function<void(int64_t step)> resumed = {}, finished = {};
    /// On rank 0, once `costs` is written: what else there is to say of it at the end.
    std::function<std::string()> close = {};
    std::function<void(const Json&)> record = {};  ///< on rank 0, what is kept of the run
    /// A saved step is marked where the next one's loss is above so many times the median; 0: where it is not finite.
    double suspect_factor = LossJudge::usual_factor;
    BitSources code = {};  ///< the libraries whose code the ranks run
};

/// Resumes from the newest verified checkpoint or starts anew, trains to options.steps, evaluates, commits and reads
/// back the last checkpoint. SIGTERM and SIGUSR1 commit a checkpoint at a step that all ranks agree on and throw
/// Fault::requeue. Collective.
void train(const TrainingRun& run);

}  // namespace orrery
