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

struct TrainingRun {
    Session& session;
    CheckpointStore& store;
    MetricsWriter* metrics = nullptr;  ///< writes metrics on rank 0; null on other ranks
    Dataset data;
    TrainOptions options;
    uint64_t seed = 1;
    RetentionPolicy keep = {};
    std::string weights;            ///< safetensors file or folder to start from; "": random weights
    PublishedWeights sources = {};  ///< where the file of `weights` stores each param
    std::string published = {};     ///< JSON for exports that each manifest stores (rank 0); "": none
    int64_t from_step = -1;         ///< step of the checkpoint to resume from; -1: the newest valid one
    std::string went_on = {};       ///< message of went_on_before (rank 0): the newest one is used after all; "": none
    /// Called on rank 0 when the checkpoint to resume from is accepted, before anything in the folder changes.
    std::function<void()> accepted = {};
    std::string trace = {};  ///< file of a traced step, written by rank 0; "": no trace
    int64_t trace_step = 0;  ///< number of the traced step; 0: the tenth step of this start, or its last
    double grace_s = 0;      ///< seconds from a request to stop until the machine goes away; 0: unknown
    std::string costs = {};  ///< file of the measured costs of steps, written by rank 0 at the end; "": none
    /// Called on every rank: `resumed` with the step resumed from, once its state is loaded; `finished` after each
    /// step, with its number.
    std::function<void(int64_t step)> resumed = {}, finished = {};
    /// Called on rank 0 after `costs` is written: returns text to print at the end.
    std::function<std::string()> close = {};
    std::function<void(const Json&)> record = {};  ///< adds to the run record, on rank 0
    /// A saved step is marked as suspect if the next step's loss exceeds the median loss by this factor; 0: only if the
    /// loss is not finite.
    double suspect_factor = LossJudge::usual_factor;
    std::vector<std::string> drop = {};  ///< as in CheckpointOptions
    BitSources code = {};                ///< liborrery and plugins, whose code the ranks run
    double nominal_flops = 0;            ///< dense FLOP/s of a rank's device by its data sheet (rank 0); 0: not known
};

/// Resumes from the newest verified checkpoint or starts from scratch, trains to options.steps, evaluates, then commits
/// and reads back the last checkpoint. On SIGTERM and SIGUSR1 it commits a checkpoint at a step that all ranks agree on
/// and throws Fault::requeue. Collective.
void train(const TrainingRun& run);

}  // namespace orrery
