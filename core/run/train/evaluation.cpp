#include "run/train/evaluation.h"

#include <algorithm>

namespace orrery {

int64_t evaluated_samples(const Dataset& data, int64_t batches, int64_t batch) {
    const int64_t held_out = data.samples(Split::validation);
    return batches >= held_out / std::max<int64_t>(1, batch) + 1 ? held_out : std::min(held_out, batches * batch);
}

Evaluation::Evaluation(Session& session, const Dataset& data, int64_t batches) {
    const Compiled& compiled = session.compiled();
    const int64_t samples = evaluated_samples(data, batches, compiled.sizes.full());
    int64_t first = 0, bytes = 0;
    for (const Calls& calls : evaluation_calls(compiled, samples)) {
        if (!calls_.empty() && calls_.back().of != calls.of) first = 0;
        const CompiledProgram* program = compiled.find(calls.entry.name);
        if (!program)
            throw Error("the session has no program " + calls.entry.name + ", which the held-out data needs",
                        Fault::failed);
        const Plan& plan = program->plan;
        Executor& executor = session.executor(plan);
        calls_.push_back({calls.of, calls.entry.mean, executor, program->snapshots,
                          InputFeed(plan, session.job().rank, data, compiled.ids),
                          std::make_unique<HostResults>(session.device(), executor), calls.times, first,
                          quotients(plan.program)});
        bytes = std::max(bytes, calls_.back().feed.bytes());
        first += calls.times * calls.entry.batch;
    }
    if (!calls_.empty()) batch_.emplace(session.device(), bytes);
}

std::vector<EvaluatedMean> Evaluation::run(uint64_t run_seed, int64_t step) {
    std::vector<EvaluatedMean> means;
    std::string_view of;
    size_t at = 0;  // index of the current mean, which is followed by its o.result means
    for (const Call& call : calls_) {
        if (means.empty() || of != call.of) {
            at = means.size();
            means.push_back({call.of});
            for (const Quotient& quotient : call.further) means.push_back({"eval_" + quotient.name});
            of = call.of;
        }
        for (int64_t i = 0; i < call.times; ++i) {
            call.feed.fill(Split::validation, call.first + i * call.feed.batch(), batch_->data());
            call.feed.set_step(run_seed, step, batch_->data());
            call.executor.run(batch_->data(), call.results->data());
            // A mean over a batch is weighted by the number of the batch's samples.
            const auto weight = call.mean ? static_cast<double>(call.feed.batch()) : 1.0;
            means[at].sum += weight * call.results->scalar("loss_sum");
            means[at].count += weight * call.results->scalar("count");
            for (size_t k = 0; k < call.further.size(); ++k) {
                means[at + 1 + k].sum += call.results->scalar(call.further[k].sum);
                means[at + 1 + k].count += call.results->scalar(call.further[k].count);
            }
        }
    }
    return means;
}

}  // namespace orrery
