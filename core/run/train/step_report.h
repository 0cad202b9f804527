#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "compile/capacity.h"
#include "run/metrics/breakdown.h"
#include "run/metrics/step_metrics.h"
#include "run/train/step_programs.h"

namespace orrery {

/// "capacity 1.25; 3 reruns so far of steps that overflowed a smaller capacity".
std::string text_of(const CapacityChoice& capacity);

/// The numbers of each step that only the rank that writes metrics collects: rates, times, memory and the loss scale.
class StepReport {
public:
    StepReport(Session& session, const StepPrograms& steps) : session_(session), steps_(steps) {}

    /// Adds to `m`, which has its step's number and `has`, what this rank knows of the ended step and of the programs
    /// that ran after it.
    void tell(StepMetrics& m, const StepPrograms::Step& now,
              const std::vector<const StepPrograms::BatchlessProgram*>& after);
    /// Floating-point operations per second of all ranks' devices, measured at the first call.
    double peak_flops();
    /// Where the time of the run was spent. `data_wait_s`: seconds that steps waited for data.
    std::vector<TimeShare> shares(double data_wait_s) const;
    /// Steps skipped by the loss scale since the run's first; -1: unknown.
    int64_t skipped() const { return skipped_; }

private:
    struct Spent {
        double communication_s = 0, waiting_s = 0;
    };
    static Spent spent(const Executor& executor);
    void add_spent(StepMetrics& m, const Executor& executor);
    void tell_scale(StepMetrics& m, const StepPrograms::Step& now);

    Session& session_;
    const StepPrograms& steps_;
    std::map<const Executor*, Spent> spent_;  ///< communication and waiting of each executor of the round
    const ResidentSet resident_;
    const bool host_visible_ = session_.device().limits().host_visible;
    double peak_ = -1;
    int64_t skipped_ = -1;
};

}  // namespace orrery
