#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "run/checkpoint.h"
#include "run/data.h"
#include "run/session.h"

namespace orrery {

/// The params, optimizer states and data cursor of a session, as checkpoints keep them. Collective.
class SavedState {
public:
    SavedState(Session& session, CheckpointStore& store, int64_t keep);

    struct Resumed {
        int64_t step = 0;                      ///< 0: fresh weights were drawn
        std::vector<std::string> passed_over;  ///< newer checkpoints that were damaged, and where
    };
    /// Loads the newest undamaged checkpoint or draws fresh weights. Throws Error when the checkpoint belongs to
    /// another model, seed or data file, naming what differs.
    Resumed resume(uint64_t seed, const Dataset& data);
    /// Loads params only, for sampling; returns the step. Throws Error when there is no checkpoint.
    int64_t load_params();
    /// Commits a checkpoint of the step and reads it back; then retires older ones. `samples`: drawn so far. Throws
    /// Error when the state has diverged: nothing is saved then.
    void save(int64_t step, uint64_t seed, const Dataset& data, int64_t samples);

private:
    std::vector<StateValue> views();
    void fetch(std::vector<StateValue>& state);
    void require_sound(int64_t step, const std::vector<StateValue>& state);
    void put_back(const std::vector<StateValue>& state);

    Session& session_;
    CheckpointStore& store_;
    Checkpoints checkpoints_;
    std::vector<std::vector<std::byte>> staging_;  ///< host copies where the device's memory is not the host's
};

}  // namespace orrery
