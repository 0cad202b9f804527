#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "run/data/input_feed.h"
#include "run/host_side.h"
#include "run/metrics/step_metrics.h"
#include "run/session.h"

namespace orrery {

/// Means over held-out data: of the loss, of what the model declares (o.result) and the script adds (program:metric).
/// Every sample counts once: what is left of a full batch runs in programs of its own (`evaluation_calls`).
class Evaluation {
public:
    /// `batches`: at most so many full batches; 0: never. `data` must outlive it.
    Evaluation(Session& session, const Dataset& data, int64_t batches);

    bool empty() const { return calls_.empty(); }
    /// What runs, each executor with the snapshots of its plan.
    template <class Use>
    void for_each(Use use) const {
        for (const Call& call : calls_) use(call.executor, call.snapshots);
    }
    /// Runs all; the loss comes first, behind each mean what its functions declare beside it.
    std::vector<EvaluatedMean> run(uint64_t run_seed, int64_t step);

private:
    struct Call {
        std::string of;  ///< the mean that it adds to
        bool mean;       ///< ProgramEntry::mean
        Executor& executor;
        const std::vector<SnapshotPlan>& snapshots;
        InputFeed feed;
        std::unique_ptr<HostResults> results;
        int64_t times;
        int64_t first;                  ///< sample of the first call
        std::vector<Quotient> further;  ///< what else the model declares
    };
    std::vector<Call> calls_;
    std::optional<HostMemory> batch_;  ///< of the largest
};

/// Held-out samples that an evaluation takes: all of them, or those of `batches` full batches.
int64_t evaluated_samples(const Dataset& data, int64_t batches, int64_t batch);

}  // namespace orrery
