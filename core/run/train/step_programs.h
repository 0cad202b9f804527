#pragma once
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "run/data/input_feed.h"
#include "run/host_side.h"
#include "run/session.h"

namespace orrery {

/// Provides the programs of the round: of each step the one for its batch size and capacity, and those that follow it.
/// All of them are compiled before the first step. Each step of the round has one executor at a time, of its current
/// size.
class StepPrograms {
public:
    /// `last_step`: last step of the run; batch sizes of later steps are left out. `data` must outlive this object.
    StepPrograms(Session& session, const Dataset& data, int64_t last_step);
    StepPrograms(const StepPrograms&) = delete;

    struct Step {
        const Program& program;
        Executor& executor;
        const InputFeed& feed;
        const HostResults& results;
        const std::vector<SnapshotPlan>& snapshots;
    };
    /// A program of the round that takes no batch.
    struct BatchlessProgram {
        const CompiledProgram& program;
        Executor& executor;
        HostPlaces places;  ///< of its inputs
        HostMemory inputs;
        HostResults results;
        std::vector<Executor*> awaits = {};  ///< of programs that wait for what this one sends
    };
    /// Sets the step of the run after which the round begins; 0 (default): it begins with step 1. Other functions take
    /// steps of the run.
    void begin_round(int64_t after) { round_after_ = after; }
    /// Returns the program of a step with one of Compiled::capacities; 0 if there are none. Replaces the executor of
    /// the program if it has another size.
    Step at(int64_t step, double capacity);
    /// Calls `run` with each program that follows the step and belongs to it, or `act` with the name of an action.
    void after(int64_t step, const std::function<void(BatchlessProgram&)>& run,
               const std::function<void(std::string_view)>& act);
    /// Sends again what is on its way after a step: a resumed run begins with the step after it.
    void send_again(int64_t step);
    /// Waits for all messages on their way.
    void settle();
    /// Fills `batch` with the inputs of a step, the same for every capacity; may be called from another thread than
    /// other functions.
    void fill(int64_t step, std::byte* batch) const;
    int64_t batch_bytes() const;
    /// Times of the executors of all programs of the round, including replaced ones.
    std::vector<Executor::Time> times() const;

private:
    struct Sized {
        const CompiledProgram& program;
        InputFeed feed;
    };
    /// A program of the round that takes a batch.
    struct StepSizes {
        std::map<std::pair<int64_t, double>, Sized> sized;  ///< by batch and capacity
        std::optional<HostResults> results;                 ///< of its current size; none before its first step
    };
    size_t name_of(int64_t step) const { return round_.program_of(step - round_after_); }
    const Sized& of(int64_t step, double capacity) const {
        return running_.at(name_of(step)).sized.at({sizes_.batch(step), capacity});
    }

    Session& session_;
    const BatchSizes& sizes_;
    const Round& round_;
    int64_t round_after_ = 0;
    const double largest_;                                           ///< the largest capacity; 0: there are none
    std::map<size_t, StepSizes> running_;                            ///< by index of the name in the round
    std::map<size_t, std::unique_ptr<BatchlessProgram>> batchless_;  ///< by index of the name in the round
    std::vector<Executor::Time> spent_;                              ///< times of replaced executors
};

}  // namespace orrery
