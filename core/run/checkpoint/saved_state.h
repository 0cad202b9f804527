#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "run/checkpoint/checkpoint.h"
#include "run/checkpoint/nonfinite.h"
#include "run/data/data.h"
#include "run/session.h"

namespace orrery {

/// The params, optimizer states and data cursor of a session, as checkpoints keep them. Collective.
class SavedState {
public:
    SavedState(Session& session, CheckpointStore& store, int64_t keep);

    struct Resumed {
        int64_t step = 0;               ///< 0: fresh weights were drawn
        std::vector<std::string> said;  ///< what was passed over, and why; what else lies there
        std::string products = {};      ///< the kind that the run had, "": the checkpoint does not say
    };
    /// Loads the newest checkpoint that is neither damaged nor suspect, or draws fresh weights. Throws Error when the
    /// checkpoint belongs to another model, seed or data file, naming what differs.
    Resumed resume(uint64_t seed, const Dataset& data);
    /// The same for params only, for sampling. Throws Error when there is no checkpoint.
    Resumed load_params();
    /// Commits a checkpoint of the step, whose loss was `loss`, and reads it back; then retires older ones. `samples`:
    /// drawn so far. Throws Error when the state has diverged: nothing is saved then. Returns what it moved.
    std::vector<std::string> save(int64_t step, uint64_t seed, const Dataset& data, int64_t samples, double loss);

    /// To be called with each step's loss. A committed step is marked as suspect when the next one's loss is not
    /// finite, or above 1,000 times its own or `LossJudge::reference`. Returns what was marked, "" when nothing. Waits
    /// for all ranks when the loss is not finite, so that the mark is there when the job ends.
    std::string judge(int64_t step, double loss);
    /// Marks a committed step; `wait`: for all ranks. Returns what to say of it.
    std::string mark(int64_t step, const std::string& why, bool wait);

private:
    Resumed told(int64_t step, std::vector<std::string> passed_over);
    std::vector<StateValue> views();
    void fetch(std::vector<StateValue>& state);
    void require_sound(int64_t step, const std::vector<StateValue>& state);
    void put_back(const std::vector<StateValue>& state);

    Session& session_;
    CheckpointStore& store_;
    Checkpoints checkpoints_;
    LossJudge judge_;
    std::vector<std::vector<std::byte>> staging_;  ///< host copies where the device's memory is not the host's
};

}  // namespace orrery
