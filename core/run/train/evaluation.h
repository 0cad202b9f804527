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

/// Evaluates means over held-out data: of the loss, of results that the model declares (o.result) and of metrics that
/// the script adds (program:metric). Each sample counts once: samples that do not fill a batch run in smaller programs
/// (`evaluation_calls`).
class Evaluation {
public:
    /// `batches`: the max number of full batches; 0: nothing is evaluated. `data` must outlive this object.
    Evaluation(Session& session, const Dataset& data, int64_t batches);

    bool empty() const { return calls_.empty(); }
    /// Calls `use` with each executor that `run` uses and the snapshots of that executor's plan.
    template <class Use>
    void for_each(Use use) const {
        for (const Call& call : calls_) use(call.executor, call.snapshots);
    }
    /// Runs all programs. Returns the means: the loss, then metrics, each followed by its program's o.result means.
    std::vector<EvaluatedMean> run(uint64_t run_seed, int64_t step);

private:
    struct Call {
        std::string of;  ///< name of the mean to which the results are added
        bool mean;       ///< whether the loss is a mean over the batch, as the model gives no count
        Executor& executor;
        const std::vector<SnapshotPlan>& snapshots;
        InputFeed feed;
        std::unique_ptr<HostResults> results;
        int64_t times;
        int64_t first;                  ///< index of the first sample of the first call
        std::vector<Quotient> further;  ///< o.result means, in addition to the mean `of`
    };
    std::vector<Call> calls_;
    std::optional<HostMemory> batch_;  ///< memory for the inputs of one batch of the largest program
};

/// Number of held-out samples that an evaluation uses: all, or those of `batches` full batches.
int64_t evaluated_samples(const Dataset& data, int64_t batches, int64_t batch);

}  // namespace orrery
