#include "run/train/step_programs.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/limits.h"
#include "base/seconds.h"
#include "run/metrics/recorded_results.h"
#include "run/train/heap.h"

namespace orrery {

StepPrograms::StepPrograms(Session& session, const Dataset& data, int64_t last_step, Compile compile)
    : session_(session),
      data_(data),
      sizes_(session.compiled().sizes),
      last_step_(last_step),
      compile_(std::move(compile)) {}

StepPrograms::~StepPrograms() {
    if (next_.valid()) next_.wait();
}

int64_t StepPrograms::batch_bytes() const {
    const Plan& full = session_.compiled().train();
    return host_inputs(full.program, full.class_of(session_.job().rank)).bytes;
}

StepPrograms::Made StepPrograms::make(int64_t batch) const {
    const Compiled& compiled = session_.compiled();
    const CompiledProgram& full = compiled.programs.front();
    std::shared_ptr<const CompiledProgram> program;
    for (const CompiledProgram& known : compiled.programs)  // the session has it
        if (known.entry.role == ProgramRole::train && known.entry.batch == batch) program = {program, &known};
    if (!program) {
        program = std::make_shared<const CompiledProgram>(compile_(at_batch(full.entry, batch)));
        require_same_results(full.plan.program, program->plan.program);
        require_scratch(compiled, *program);
    }
    const Plan& plan = program->plan;
    InputFeed feed(plan, session_.job().rank, data_, compiled.ids);
    if (feed.bytes() > batch_bytes())
        throw Error("the step of " + std::to_string(batch) + " samples has more bytes of inputs than the full one",
                    Fault::failed);
    return std::make_shared<const Sized>(Sized{std::move(program), std::move(feed)});
}

int64_t StepPrograms::batch_behind(int64_t step) const {
    const std::vector<int64_t> sizes = sizes_.sizes();
    const auto behind = std::upper_bound(sizes.begin(), sizes.end(), sizes_.batch(step));
    return behind == sizes.end() || *behind > sizes_.batch(last_step_) ? 0 : *behind;
}

/// Every rank learns what became of the others' before one of them goes on.
StepPrograms::Made StepPrograms::take_next(int64_t step) {
    Made made;
    std::string problem;
    try {
        made = next_.valid() ? next_.get() : make(sizes_.batch(step));
    } catch (const std::exception& error) {
        problem = explain(error);
    }
    const std::vector<std::string> problems = session_.exchange("program of a step", problem, WaitLimit::files);
    for (size_t rank = 0; rank < problems.size(); ++rank)
        if (!problems[rank].empty())
            throw NotMade(
                fmt::format("the step of {} samples, which begins at step {}, cannot be made{}: {}", sizes_.batch(step),
                            step, problems.size() > 1 ? fmt::format(" on rank {}", rank) : "", problems[rank]),
                Fault::failed);
    return made;
}

StepPrograms::Step StepPrograms::at(int64_t step) {
    if (!now_ || now_->feed.batch() != sizes_.batch(step)) {
        const auto began = std::chrono::steady_clock::now();
        Made made = take_next(step);
        if (now_) waited_s_ += seconds_since(began);
        if (&session_.main().plan() != &made->program->plan) {
            const auto& times = session_.main().times();
            spent_.insert(spent_.end(), times.begin(), times.end());
            session_.train_with(made->program);
        }
        results_.emplace(session_.device(), session_.main());
        {
            const std::lock_guard lock(mutex_);
            now_.swap(made);
            next_ = {};
            if (const int64_t behind = batch_behind(step); behind > 0)
                next_ = std::async(std::launch::async, [this, behind] { return make(behind); });
        }
        made.reset();
        give_back_free_pages();  // the size before, and what compiling left
    }
    return {now_->program->plan.program, session_.main(), now_->feed, *results_, now_->program->snapshots};
}

void StepPrograms::fill(int64_t step, std::byte* batch) {
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
