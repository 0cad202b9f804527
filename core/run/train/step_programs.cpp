#include "run/train/step_programs.h"

#include <fmt/format.h>

#include <algorithm>

#include "run/metrics/recorded_results.h"

namespace orrery {

StepPrograms::StepPrograms(Session& session, const Dataset& data, int64_t last_step)
    : session_(session),
      sizes_(session.compiled().sizes),
      largest_(session.compiled().capacities.empty() ? 0 : session.compiled().capacities.back()) {
    const Compiled& compiled = session.compiled();
    for (const CompiledProgram& program : compiled.programs) {
        const int64_t batch = program.entry.batch;
        if (program.entry.role != ProgramRole::train || batch > sizes_.batch(last_step)) continue;
        require_same_results(compiled.train().program, program.plan.program);
        const double capacity = program.entry.capacity > 0 ? program.entry.capacity : largest_;
        sized_.emplace(std::pair(batch, capacity),
                       Sized{program, {program.plan, session.job().rank, data, compiled.ids}});
    }
    for (const auto& [key, sized] : sized_)
        if (!sized.feed.same_places(sized_.at({key.first, largest_}).feed))
            throw Error(fmt::format("bug in Orrery: {} has its inputs in other places than with capacity {:g}",
                                    sized.program.entry.name, largest_),
                        Fault::failed);
}

int64_t StepPrograms::batch_bytes() const {
    int64_t most = 0;
    for (const auto& [key, sized] : sized_) most = std::max(most, sized.feed.bytes());
    return most;
}

StepPrograms::Step StepPrograms::at(int64_t step, double capacity) {
    const Sized& now = of(step, capacity);
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
    of(step, largest_).feed.fill(Split::train, sizes_.samples_before(step), batch);
}

}  // namespace orrery
