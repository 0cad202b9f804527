#include "run/train/step_programs.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "run/train/metrics.h"

namespace orrery {

StepPrograms::StepPrograms(Session& session, const Dataset& data, Compile compile)
    : session_(session), data_(data), sizes_(session.compiled().sizes), compile_(std::move(compile)) {}

StepPrograms::~StepPrograms() {
    if (next_.valid()) next_.wait();
}

StepPrograms::Made StepPrograms::make(int64_t batch) const {
    const Compiled& compiled = session_.compiled();
    const auto feed = [&](const CompiledProgram& program) {
        return InputFeed(program.plan.program, program.plan.mesh, session_.job().rank, data_, compiled.ids);
    };
    const CompiledProgram& full = compiled.programs.front();
    if (batch == full.entry.batch) return Made(new Sized{nullptr, full, feed(full)});
    for (const CompiledProgram& program : compiled.programs)
        if (program.entry.role == ProgramRole::train && program.entry.batch == batch)
            return Made(new Sized{nullptr, program, feed(program)});
    ProgramEntry entry = full.entry;
    entry.batch = batch;
    entry.name += " of " + std::to_string(batch);
    auto own = std::make_unique<const CompiledProgram>(compile_(entry));
    require_same_results(full.plan.program, own->plan.program);
    const CompiledProgram& program = *own;
    return Made(new Sized{std::move(own), program, feed(program)});
}

int64_t StepPrograms::batch_behind(int64_t step) const {
    const std::vector<int64_t> sizes = sizes_.sizes();
    const auto behind = std::upper_bound(sizes.begin(), sizes.end(), sizes_.batch(step));
    return behind == sizes.end() ? 0 : *behind;
}

StepPrograms::Step StepPrograms::at(int64_t step) {
    const int64_t batch = sizes_.batch(step);
    if (!now_ || now_->feed.batch() != batch) {
        const auto began = std::chrono::steady_clock::now();
        const Made made = next_.valid() ? next_.get() : make(batch);
        if (now_) waited_s_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
        if (&session_.main().plan() != &made->program.plan) {
            const auto& times = session_.main().times();
            spent_.insert(spent_.end(), times.begin(), times.end());
            session_.train_with(made->program);
        }
        const std::lock_guard lock(mutex_);
        now_ = made;
        next_ = {};
        if (const int64_t behind = batch_behind(step); behind > 0)
            next_ = std::async(std::launch::async, [this, behind] { return make(behind); });
    }
    return {now_->program.plan.program, session_.main(), now_->feed};
}

void StepPrograms::fill(int64_t step, Prefetch::Batch& batch) {
    Made now;
    std::shared_future<Made> next;
    {
        const std::lock_guard lock(mutex_);
        now = now_;
        next = next_;
    }
    const Made& made = now->feed.batch() == sizes_.batch(step) ? now : next.get();
    made->feed.fill(Split::train, sizes_.samples_before(step), batch);
}

}  // namespace orrery
