#include "run/train/step_programs.h"

#include <algorithm>

#include "run/metrics/recorded_results.h"

namespace orrery {

StepPrograms::StepPrograms(Session& session, const Dataset& data, int64_t last_step)
    : session_(session), sizes_(session.compiled().sizes) {
    const Compiled& compiled = session.compiled();
    for (const CompiledProgram& program : compiled.programs) {
        const int64_t batch = program.entry.batch;
        if (program.entry.role != ProgramRole::train || batch > sizes_.batch(last_step)) continue;
        require_same_results(compiled.train().program, program.plan.program);
        sized_.emplace(batch, Sized{program, {program.plan, session.job().rank, data, compiled.ids}});
    }
}

int64_t StepPrograms::batch_bytes() const {
    int64_t most = 0;
    for (const auto& [batch, sized] : sized_) most = std::max(most, sized.feed.bytes());
    return most;
}

StepPrograms::Step StepPrograms::at(int64_t step) {
    const Sized& now = of(step);
    const Plan& plan = now.program.plan;
    if (const Plan& before = session_.main().plan(); &before != &plan) {
        const auto& times = session_.main().times();
        spent_.insert(spent_.end(), times.begin(), times.end());
        session_.train_with(now.program);
        results_.reset();
    }
    if (!results_) results_.emplace(session_.device(), session_.main());
    return {plan.program, session_.main(), now.feed, *results_, now.program.snapshots};
}

void StepPrograms::fill(int64_t step, std::byte* batch) const {
    of(step).feed.fill(Split::train, sizes_.samples_before(step), batch);
}

}  // namespace orrery
