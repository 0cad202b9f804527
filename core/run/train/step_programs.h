#pragma once
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "run/data/input_feed.h"
#include "run/host_side.h"
#include "run/session.h"

namespace orrery {

/// Provides the train program and executor for each step's batch size and capacity. All of them are compiled before the
/// first step; one train executor exists at a time.
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
    /// Returns the program of a step with one of Compiled::capacities; 0 if there are none. Replaces the executor if
    /// its program is not that of the previous call.
    Step at(int64_t step, double capacity);
    /// Results of the step that at() returned last.
    const HostResults& results() const { return *results_; }
    /// Fills `batch` with the inputs of a step, the same for every capacity; may be called from another thread than
    /// other functions.
    void fill(int64_t step, std::byte* batch) const;
    int64_t batch_bytes() const;
    /// Times that replaced executors have spent.
    const std::vector<Executor::Time>& spent() const { return spent_; }

private:
    struct Sized {
        const CompiledProgram& program;
        InputFeed feed;
    };
    const Sized& of(int64_t step, double capacity) const { return sized_.at({sizes_.batch(step), capacity}); }

    Session& session_;
    const BatchSizes& sizes_;
    const double largest_;                               ///< the largest capacity; 0: there are none
    std::map<std::pair<int64_t, double>, Sized> sized_;  ///< by batch and capacity
    std::optional<HostResults> results_;
    std::vector<Executor::Time> spent_;
};

}  // namespace orrery
