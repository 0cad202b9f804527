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
    /// `nominal_flops`: FLOP/s of a rank's device by its data sheet; 0: not known.
    StepReport(Session& session, const StepPrograms& steps, double nominal_flops)
        : session_(session), steps_(steps), nominal_(nominal_flops) {}

    /// Adds to `m`, which has its step's number and `has`, what this rank knows of the ended step and of the programs
    /// that ran after it.
    void tell(StepMetrics& m, const StepPrograms::Step& now,
              const std::vector<const StepPrograms::BatchlessProgram*>& after);
    /// Measures the matrix rate of this rank's device, which MFU is relative to. Steps must not run meanwhile. Returns
    /// a line for the user if there is no memory for it, and MFU is relative to what the device stated; else "".
    std::string measure_rate();
    /// Measures it again after steps that took `seconds`, if they took a minute or more. Returns a line for the user if
    /// both rates differ by more than 5 % or it could not be measured; else "".
    std::string measure_rate_again(double seconds);
    /// The rates of both times, for the run record: "matrix_rate".
    Json rates() const;
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
    const double nominal_;
    double rate_ = 0;        ///< FLOP/s of this rank's device, measured before the first step; 0: not known
    bool measured_ = false;  ///< else it is what the device stated
    double last_rate_ = 0;   ///< the same, measured after the last step; 0: not measured
    int64_t skipped_ = -1;
};

}  // namespace orrery
