#include "run/train/step_programs.h"

#include <fmt/format.h>

#include <algorithm>

#include "run/metrics/recorded_results.h"

namespace orrery {

StepPrograms::StepPrograms(Session& session, const Dataset& data, int64_t last_step)
    : session_(session),
      sizes_(session.compiled().sizes),
      round_(session.compiled().round),
      largest_(session.compiled().capacities.empty() ? 0 : session.compiled().capacities.back()) {
    const Compiled& compiled = session.compiled();
    const std::vector<const CompiledProgram*> full = round_programs(compiled);
    for (const CompiledProgram& program : compiled.programs) {
        const ProgramEntry& entry = program.entry;
        const bool trains = entry.role == ProgramRole::train;
        if (!trains && entry.role != ProgramRole::update) continue;
        const size_t name = round_index(round_, entry);
        if (!trains) {
            Executor& executor = session.executor(program.plan);
            HostPlaces places = host_inputs(program.plan.program, program.plan.class_of(session.job().rank));
            const int64_t bytes = std::max<int64_t>(1, places.bytes);
            batchless_[name].reset(new BatchlessProgram{
                program, executor, std::move(places), {session.device(), bytes}, {session.device(), executor}});
        } else if (entry.batch <= sizes_.batch(last_step)) {
            require_same_results(full[name]->plan.program, program.plan.program);
            const double capacity = entry.capacity > 0 ? entry.capacity : largest_;
            InputFeed feed(program.plan, session.job().rank, data, compiled.ids);
            running_[name].sized.emplace(std::pair(entry.batch, capacity), Sized{program, std::move(feed)});
        }
    }
    const std::vector<int>& senders = round_.senders();
    for (size_t name = 0; name < senders.size(); ++name)
        if (senders[name] != none) batchless_.at(senders[name])->awaits.push_back(&batchless_.at(name)->executor);
    for (const auto& [index, running] : running_)
        for (const auto& [key, sized] : running.sized)
            if (!sized.feed.same_places(running.sized.at({key.first, largest_}).feed))
                throw Error(fmt::format("bug in Orrery: {} has its inputs in other places than with capacity {:g}",
                                        sized.program.entry.name, largest_),
                            Fault::failed);
}

int64_t StepPrograms::batch_bytes() const {
    int64_t most = 0;
    for (const auto& [name, running] : running_)
        for (const auto& [key, sized] : running.sized) most = std::max(most, sized.feed.bytes());
    return most;
}

StepPrograms::Step StepPrograms::at(int64_t step, double capacity) {
    const Sized& now = of(step, capacity);
    StepSizes& running = running_.at(name_of(step));
    const Plan& plan = now.program.plan;
    if (Executor& before = session_.step_executor(now.program.entry); &before.plan() != &plan) {
        const auto& times = before.times();
        spent_.insert(spent_.end(), times.begin(), times.end());
        session_.train_with(now.program);
        running.results.reset();
    }
    Executor& executor = session_.step_executor(now.program.entry);
    if (!running.results) running.results.emplace(session_.device(), executor);
    return {plan.program, executor, now.feed, *running.results, now.program.snapshots};
}

void StepPrograms::after(int64_t step, const std::function<void(BatchlessProgram&)>& run,
                         const std::function<void(std::string_view)>& act) {
    round_.after(step - round_after_,
                 [&](size_t name) { round_.is_action(name) ? act(round_.names()[name]) : run(*batchless_.at(name)); });
}

void StepPrograms::send_again(int64_t step) {
    for (const size_t name : round_.awaited(step - round_after_)) batchless_.at(name)->executor.start();
}

void StepPrograms::settle() {
    for (const auto& [name, program] : batchless_) program->executor.settle();
}

std::vector<Executor::Time> StepPrograms::times() const {
    std::vector<Executor::Time> all = spent_;
    const auto add = [&](const Executor& executor) {
        const auto& times = executor.times();
        all.insert(all.end(), times.begin(), times.end());
    };
    for (const auto& [name, running] : running_)
        if (running.results) add(session_.step_executor(running.sized.begin()->second.program.entry));
    for (const auto& [name, program] : batchless_) add(program->executor);
    return all;
}

void StepPrograms::fill(int64_t step, std::byte* batch) const {
    of(step, largest_).feed.fill(Split::train, sizes_.samples_before(step), batch);
}

}  // namespace orrery
