#include "run/train/round_results.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "ir/describe.h"

namespace orrery {

std::string_view judged_norm(const Compiled& compiled, const Program& program) {
    if (compiled.loss_scale) return "";
    if (program.result(guard_name)) return guard_name;
    return program.result("grad_norm") ? "grad_norm" : "";
}

TrainedNumbers trained_numbers(const Compiled& compiled, bool nominal) {
    const auto any = [all = round_programs(compiled)](const auto& has) {
        return std::ranges::any_of(all, [&](const CompiledProgram* one) { return one && has(one->plan.program); });
    };
    return {.tokens = compiled.tokens_per_step > 0,
            .nats = compiled.tokens_per_step > 0 && compiled.nats,
            .norm = any([](const Program& program) { return program.result("grad_norm").has_value(); }),
            .rate = any([](const Program& program) { return program.result("lr").has_value(); }),
            .scale = any(has_loss_scale),
            .capacity = !compiled.capacities.empty(),
            .nominal = nominal};
}

double scalar_of(std::string_view name, const StepPrograms::Step& step,
                 const std::vector<const StepPrograms::BatchlessProgram*>& after) {
    if (step.program.result(name)) return step.results.scalar(name);
    for (const StepPrograms::BatchlessProgram* program : after)
        if (program->program.plan.program.result(name)) return program->results.scalar(name);
    return 0;
}

bool nothing_counts(const StepPrograms::BatchlessProgram& program) {
    constexpr std::string_view name = "round_count";
    return program.program.plan.program.result(name) && program.results.scalar(name) == 0;
}

namespace {

/// The type of a result; a mean is a scalar.
TensorType result_type(const RecordedResult& result, const Program& program) {
    if (result.parts || !result.why_not.empty()) return {};
    return program.value(*program.result(result.value)).type;
}

void require_same_type(const RecordedResult& first, const TensorType& type, const RecordedResult& result,
                       const Program& program) {
    if (first.parts.has_value() == result.parts.has_value() && type == result_type(result, program)) return;
    const std::string& value = result.parts ? result.parts->sum : result.value;
    throw Error(
        program.value(*program.result(value)).origin,
        fmt::format("two programs of the round have a result {} of other types: {} in {}, and {}\n  give them "
                    "other names",
                    quote(result.name), text_of(result_type(result, program), {}), program.name, text_of(type, {})));
}

}  // namespace

RoundResults::RoundResults(const Compiled& compiled) {
    size_t largest = 0;
    std::vector<TensorType> types;  // of recorded_
    for (const CompiledProgram* of_round : round_programs(compiled)) {
        if (!of_round) continue;
        const Program* const program = &of_round->plan.program;
        for (RecordedResult& result : recorded_results(*program)) {
            if (const auto other = std::ranges::find(recorded_, result.name, &RecordedResult::name);
                other != recorded_.end()) {
                require_same_type(*other, types[other - recorded_.begin()], result, *program);
                continue;
            }
            types.push_back(result_type(result, *program));
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

void RoundResults::begin() {
    for (StepResult& result : values_) std::ranges::fill(result.values, std::nan(""));
}

void RoundResults::read(const Program& program, const HostResults& results) {
    size_t at = 0;
    for (const RecordedResult& result : recorded_) {
        if (!result.why_not.empty()) continue;
        std::vector<double>& values = values_[at++].values;
        if (!program.result(result.parts ? result.parts->sum : result.value)) continue;
        if (result.parts) {
            values[0] = results.scalar(result.parts->sum) / results.scalar(result.parts->count);
            continue;
        }
        results.read(result.value, elements_.data());
        std::copy_n(elements_.begin(), values.size(), values.begin());
    }
}

}  // namespace orrery
