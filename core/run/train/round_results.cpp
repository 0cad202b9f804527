#include "run/train/round_results.h"

#include <algorithm>
#include <cmath>

namespace orrery {

TrainedNumbers trained_numbers(const Compiled& compiled) {
    const Program& program = compiled.train().program;
    const auto any = [all = round_programs(compiled)](const char* result) {
        return std::ranges::any_of(
            all, [&](const CompiledProgram* one) { return one && one->plan.program.result(result).has_value(); });
    };
    return {.tokens = compiled.tokens_per_step > 0,
            .nats = compiled.tokens_per_step > 0 && compiled.nats,
            .norm = any("grad_norm"),
            .rate = any("lr"),
            .scale = has_loss_scale(program),
            .capacity = !compiled.capacities.empty()};
}

const HostResults* RanPrograms::with(std::string_view name) const {
    if (step.program.result(name)) return &step.results;
    for (const StepPrograms::Between* program : after)
        if (program->program.plan.program.result(name)) return &program->results;
    return nullptr;
}

double RanPrograms::scalar(std::string_view name) const {
    const HostResults* const results = with(name);
    return results ? results->scalar(name) : 0;
}

RoundResults::RoundResults(const Compiled& compiled) {
    size_t largest = 0;
    for (const CompiledProgram* of_round : round_programs(compiled)) {
        if (!of_round) continue;
        const Program* const program = &of_round->plan.program;
        for (RecordedResult& result : recorded_results(*program)) {
            if (std::ranges::find(recorded_, result.name, &RecordedResult::name) != recorded_.end()) continue;
            if (result.why_not.empty()) {
                const int64_t count = result.parts ? 1 : program->value(*program->result(result.value)).type.count();
                values_.emplace_back(result.name, static_cast<size_t>(count));
                values_.back().shown = result.shown;
                largest = std::max(largest, values_.back().values.size());
            }
            recorded_.push_back(std::move(result));
        }
    }
    elements_.resize(largest);
}

std::vector<std::string> RoundResults::left_out() const {
    std::vector<std::string> lines;
    for (const RecordedResult& result : recorded_)
        if (!result.why_not.empty()) lines.push_back(result.why_not);
    return lines;
}

void RoundResults::read(const RanPrograms& ran) {
    size_t at = 0;
    for (const RecordedResult& result : recorded_) {
        if (!result.why_not.empty()) continue;
        std::vector<double>& values = values_[at++].values;
        const HostResults* const results = ran.with(result.parts ? result.parts->sum : result.value);
        if (!results) {
            std::ranges::fill(values, std::nan(""));
            continue;
        }
        if (result.parts) {
            values[0] = results->scalar(result.parts->sum) / results->scalar(result.parts->count);
            continue;
        }
        results->read(result.value, elements_.data());
        std::copy_n(elements_.begin(), values.size(), values.begin());
    }
}

}  // namespace orrery
