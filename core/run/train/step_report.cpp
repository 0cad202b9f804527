#include "run/train/step_report.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "base/text.h"
#include "compile/passes/loss_scale.h"
#include "run/matrix_rate.h"
#include "run/train/round_results.h"

namespace orrery {

std::string text_of(const CapacityChoice& capacity) {
    const int64_t again = capacity.again();
    if (again == 0) return fmt::format("capacity {:g}; no step overflowed", capacity.now());
    return fmt::format("capacity {:g}; {} so far of steps that overflowed a smaller capacity", capacity.now(),
                       plural(again, "rerun"));
}

void StepReport::tell(StepMetrics& m, const StepPrograms::Step& now,
                      const std::vector<const StepPrograms::BatchlessProgram*>& after) {
    const Compiled& compiled = session_.compiled();
    m.time = wall_time();
    m.grad_norm = scalar_of("grad_norm", now, after);
    m.lr = scalar_of("lr", now, after);
    if (has_loss_scale(now.program))
        tell_scale(m, now);
    else if (m.has.scale)
        m.loss_scale = std::nan("");
    const int64_t tokens = compiled.tokens_per_step / compiled.sizes.full();
    m.tokens = tokens * now.feed.batch();
    m.samples = now.feed.batch();
    m.all_samples = compiled.sizes.samples_before(m.step + 1);
    m.all_tokens = tokens * m.all_samples;
    const double batches = static_cast<double>(now.feed.batch()) / static_cast<double>(compiled.sizes.full());
    m.flops = compiled.flops_per_step * batches;
    m.full_flops = compiled.full_flops_per_step * batches;
    const auto ranks = static_cast<double>(session_.job().ranks);
    m.peak_flops = rate_ * ranks;
    m.nominal_flops = nominal_ * ranks;
    m.memory_bytes = host_visible_ ? resident_.bytes() : session_.device().limits().used_bytes;
    add_spent(m, now.executor);
    for (const StepPrograms::BatchlessProgram* program : after) add_spent(m, program->executor);
}

/// Adds what an executor has spent since the last step.
void StepReport::add_spent(StepMetrics& m, const Executor& executor) {
    const Spent now = spent(executor);
    Spent& before = spent_[&executor];
    if (executor.steps_begun() == 1) before = {};
    m.communication_s += now.communication_s - before.communication_s;
    m.waiting_s += now.waiting_s - before.waiting_s;
    before = now;
}

StepReport::Spent StepReport::spent(const Executor& executor) {
    using enum Executor::Time::Kind;
    Spent spent;
    for (const Executor::Cost& cost : executor.costs()) {
        if (cost.kind == communication) spent.communication_s += cost.all.seconds;
        if (cost.kind == waiting) spent.waiting_s += cost.all.seconds;
    }
    return spent;
}

void StepReport::tell_scale(StepMetrics& m, const StepPrograms::Step& now) {
    m.loss_scale = now.results.scalar("loss_scale");
    m.skipped = static_cast<int64_t>(now.results.scalar("skipped"));
    // A resumed run's first step has no earlier count of skips.
    m.skips = skipped_ < 0 ? m.skipped > 0 && !std::isfinite(m.grad_norm) : m.skipped > skipped_;
    skipped_ = m.skipped;
}

std::string StepReport::measure_rate() {
    const DType type = matrix_type(session_.compiled().train().program);
    try {
        rate_ = matrix_rate(session_.device(), type);
        measured_ = true;
        return "";
    } catch (const Error& error) {
        const DeviceLimits limits = session_.device().limits();
        rate_ = type == DType::f32 ? limits.matrix_flops_f32 : type == DType::bf16 ? limits.matrix_flops_bf16 : 0;
        return fmt::format("MFU is relative to the rate of {} products before the arrays were allocated, {}: {}",
                           name_of(type), rate_ > 0 ? fmt::format("{:.1f} TFLOP/s", rate_ / 1e12) : "unknown",
                           error.what());
    }
}

std::string StepReport::measure_rate_again(double seconds) {
    constexpr double long_enough_s = 60;
    if (!measured_ || rate_ == 0 || host_visible_ || seconds < long_enough_s) return "";
    const DType type = matrix_type(session_.compiled().train().program);
    try {
        last_rate_ = matrix_rate(session_.device(), type);
    } catch (const Error& error) {
        return fmt::format("the rate of matrix products was not measured again: {}", error.what());
    }
    return rates_apart(type, rate_, last_rate_);
}

Json StepReport::rates() const {
    const auto known = [](double rate) { return rate > 0 ? Json(rate) : Json(nullptr); };
    return {{"type", std::string(name_of(matrix_type(session_.compiled().train().program)))},
            {"first", known(measured_ ? rate_ : 0)},
            {"last", known(last_rate_)},
            {"nominal", known(nominal_)}};
}

std::vector<TimeShare> StepReport::shares(double data_wait_s) const {
    std::map<std::pair<std::string, std::string>, double> seconds;
    for (const Executor::Time& time : steps_.times()) {
        using enum Executor::Time::Kind;
        const std::string kind = time.kind == compute         ? "compute"
                                 : time.kind == communication ? "communication"
                                                              : "waiting";
        const std::string part = time.axis.empty() ? kind : kind + " " + time.axis;
        seconds[{part, kind + ": " + time.name}] += time.seconds;
    }
    std::vector<TimeShare> list = {{"waiting: data", data_wait_s, "waiting"}};
    for (const auto& [what, spent] : seconds) list.push_back({what.second, spent, what.first});
    return list;
}

}  // namespace orrery
