#pragma once
#include <map>
#include <optional>

#include "run/data/input_feed.h"
#include "run/host_side.h"
#include "run/session.h"

namespace orrery {

/// Provides the train program and executor for each step's batch size. All sizes of a batch ramp are compiled before
/// the first step; one train executor exists at a time.
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
    /// Returns the program of a step. Replaces the executor if the batch size differs from that of the previous step.
    Step at(int64_t step);
    /// Results of the step that at() returned last.
    const HostResults& results() const { return *results_; }
    /// Fills `batch` with the inputs of a step; may be called from another thread than other functions.
    void fill(int64_t step, std::byte* batch) const;
    int64_t batch_bytes() const;
    /// Times that replaced executors have spent.
    const std::vector<Executor::Time>& spent() const { return spent_; }

private:
    struct Sized {
        const CompiledProgram& program;
        InputFeed feed;
    };
    const Sized& of(int64_t step) const { return sized_.at(sizes_.batch(step)); }

    Session& session_;
    const BatchSizes& sizes_;
    std::map<int64_t, Sized> sized_;
    std::optional<HostResults> results_;
    std::vector<Executor::Time> spent_;
};

}  // namespace orrery
