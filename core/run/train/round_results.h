#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "run/metrics/recorded_results.h"
#include "run/metrics/step_metrics.h"
#include "run/train/step_programs.h"

namespace orrery {

/// Name of the result that says whether all gradients are finite; "": there is none, or a loss scale handles overflows.
std::string_view judged_norm(const Compiled& compiled, const Program& program);
/// The optional numbers that the programs of the round give together. `nominal`: the data sheet's rate is known.
TrainedNumbers trained_numbers(const Compiled& compiled, bool nominal);

/// The value of a result that is one f32, of the first program that has it: the step's, then those that ran after it;
/// 0: none of them has it.
double scalar_of(std::string_view name, const StepPrograms::Step& step,
                 const std::vector<const StepPrograms::BatchlessProgram*>& after);

/// Whether a program in which islands meet, and which just ran, found that none of them has counted anything since they
/// last met: its result round_count is 0.
bool nothing_counts(const StepPrograms::BatchlessProgram& program);

/// The results of the script that metrics record: those of all programs of the round, each name once.
class RoundResults {
public:
    /// Throws Error if two programs have results of one name and other types.
    explicit RoundResults(const Compiled& compiled);

    /// Lines that say which results metrics lack and why.
    std::vector<std::string> left_out() const;
    /// Begins a step: all values are NaN.
    void begin();
    /// Reads the results of a program that just ran, before a later one changes arrays that are results.
    void read(const Program& program, const HostResults& results);
    std::span<const StepResult> values() const { return values_; }

private:
    std::vector<RecordedResult> recorded_;
    std::vector<StepResult> values_;  ///< of those that metrics have
    std::vector<float> elements_;
};

}  // namespace orrery
