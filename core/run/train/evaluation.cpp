#include "run/train/evaluation.h"

#include <algorithm>

namespace orrery {

int64_t evaluated_samples(const Dataset& data, int64_t batches, int64_t batch) {
    const int64_t held_out = data.samples(Split::validation);
    return batches >= held_out / std::max<int64_t>(1, batch) + 1 ? held_out : std::min(held_out, batches * batch);
}

Evaluation::Evaluation(Session& session, const Dataset& data, int64_t batches) : session_(session) {
    const Compiled& compiled = session.compiled();
    const int64_t samples = evaluated_samples(data, batches, compiled.sizes.full());
    int64_t first = 0;
    for (const Calls& calls : evaluation_calls(compiled, samples)) {
        if (!calls_.empty() && calls_.back().of != calls.of) first = 0;
        const CompiledProgram* program = compiled.find(calls.entry.name);
        if (!program)
            throw Error("the session has no program " + calls.entry.name + ", which the held-out data needs",
                        Fault::failed);
        const Plan& plan = program->plan;
        calls_.push_back({calls.of, calls.entry.mean, plan, session.executor(plan),
                          InputFeed(plan.program, plan.mesh, session.job().rank, data, compiled.ids), calls.times,
                          first});
        first += calls.times * calls.entry.batch;
    }
}

std::vector<EvaluatedMean> Evaluation::run(uint64_t run_seed, int64_t step) {
    std::vector<EvaluatedMean> means;
    Prefetch::Batch batch;
    for (const Call& call : calls_) {
        if (means.empty() || means.back().name != call.of) means.push_back({call.of});
        for (int64_t i = 0; i < call.times; ++i) {
            call.feed.fill(Split::validation, call.first + i * call.feed.batch(), batch);
            call.feed.upload(session_, call.executor, batch);
            set_step(session_, call.executor, call.plan.program, run_seed, step);
            call.executor.run();
            // A mean stands for as many samples as its batch has.
            const auto weight = call.mean ? static_cast<double>(call.feed.batch()) : 1.0;
            means.back().sum += weight * session_.scalar(call.executor, call.plan.program, "loss_sum");
            means.back().count += weight * session_.scalar(call.executor, call.plan.program, "count");
        }
    }
    return means;
}

}  // namespace orrery
