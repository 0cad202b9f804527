#include "run/train/train.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>

#include "run/checkpoint/pretrained.h"
#include "run/checkpoint/saved_state.h"
#include "run/control/preemption.h"
#include "run/matrix_rate.h"
#include "run/record/run_costs.h"
#include "run/record/step_trace.h"
#include "run/train/evaluation.h"

namespace orrery {
namespace {

using Clock = std::chrono::steady_clock;

class Trainer {
public:
    explicit Trainer(const TrainingRun& run)
        : run_(run),
          session_(run.session),
          sizes_(run.session.compiled().sizes),
          data_(run.data),
          steps_(session_, data_, run.options.steps, run.compile),
          results_(recorded_results(session_.compiled().train().program)),
          state_(session_, run.store, run.keep),
          evaluation_(session_, data_, run.options.evaluate_batches) {}

    void run() {
        require_same_data();  // it was opened before all compiled and met
        agree();
        const SavedState::Resumed resumed = state_.resume(run_.seed, data_);
        for (const std::string& said : resumed.said) note(said);
        if (resumed.step > 0)
            note(fmt::format("resumed from step {}: {}", resumed.step, run_.store.place()));
        else if (!run_.weights.empty())
            load_weights(session_, run_.weights, run_.sources);
        session_.settle_products(resumed.products, resumed.step);
        const int64_t first = resumed.step + 1;
        choose_traced(first);
        if (first > run_.options.steps)
            note(fmt::format("step {} of {} is already done", first - 1, run_.options.steps));
        for (const std::string& line : session_.products().said) note(line);
        for (const std::string& line : session_.notes()) note(line);
        for (const RecordedResult& result : results_)
            if (!result.why_not.empty()) note(result.why_not);
        if (run_.metrics) run_.metrics->resume(resumed.step);
        if (run_.metrics && first <= run_.options.steps) run_.metrics->header(scaled());
        const auto begin = Clock::now();
        if (first <= run_.options.steps) steps(first);
        const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
        if (!evaluated_) evaluate(std::max(resumed.step, run_.options.steps));  // the state at hand
        const bool saves = run_.options.checkpoint_final && saved_ != run_.options.steps;
        if (saves && first <= run_.options.steps) save(run_.options.steps);
        const bool counted = first <= run_.options.steps && write_costs();
        if (run_.metrics && first <= run_.options.steps) note(breakdown_text(shares(), seconds));
        if (run_.close && counted)  // else a costs.json that is there is another run's
            if (const std::string said = run_.close(); !said.empty()) note(said);
        if (scaled() && skipped_ > 0)
            note(fmt::format("{} of {} steps skipped: their gradients overflowed under the loss scale", skipped_,
                             run_.options.steps));
    }

private:
    /// Two ranks with other settings would part at a step in which only one of them does something.
    void agree() const {
        const TrainOptions& o = run_.options;
        session_.agree("run settings", {{"train.steps", std::to_string(o.steps)},
                                        {"train.evaluate_every", std::to_string(o.evaluate_every)},
                                        {"train.evaluate_batches", std::to_string(o.evaluate_batches)},
                                        {"checkpoint.every_steps", std::to_string(o.checkpoint_every)},
                                        {"checkpoint.final", o.checkpoint_final ? "true" : "false"},
                                        {"run.seed", std::to_string(run_.seed)},
                                        {"weights to start from", run_.weights.empty() ? "none" : "given"},
                                        {"sequences per step", std::to_string(data_.spec().sequences_per_step)},
                                        {"data.validation", fmt::format("{}", data_.spec().validation)},
                                        {"seed of the data", std::to_string(data_.spec().seed)},
                                        {"the data's samples", std::to_string(data_.source().samples())},
                                        {"the data's digest", data_.digest()}});
    }

    /// By then memory has been touched, and libraries have made what they make at first use.
    void choose_traced(int64_t first) {
        if (run_.trace.empty()) return;
        const int64_t last = run_.options.steps;
        check_trace(run_.trace, run_.trace_step, last, run_.metrics != nullptr);
        traced_step_ = run_.trace_step > 0 ? run_.trace_step : std::min(first + 9, last);
        if (traced_step_ < first && first <= last)
            note(fmt::format("no trace: step {} is already done, the run goes on from step {}", traced_step_, first));
    }

    void write_trace(const Executor& executor) {
        for (const std::string& said : write_step_trace(session_, executor, *traced_, run_.trace)) note(said);
        traced_.reset();
    }

    /// Whether this rank has nothing to say against it: all but the first write nothing.
    bool write_costs() {
        if (run_.costs.empty()) return false;
        const int64_t counted = session_.main().steps_begun() - 1;
        const double mean = counted > 0 ? counted_s_ / static_cast<double>(counted) : 0;
        const std::string why_not = write_run_costs(session_, counted, mean, run_.costs);
        if (!why_not.empty()) note(why_not);
        return why_not.empty();
    }

    void steps(int64_t first) {
        steps_.at(first);
        const HostMemory one(session_.device(), steps_.batch_bytes()), other(session_.device(), one.bytes());
        Prefetch prefetch([this](int64_t step, std::byte* batch) { steps_.fill(step, batch); }, first, one.data(),
                          other.data());
        const StopVote vote(session_.job().ranks);
        if (run_.metrics) peak_flops();  // measures: no part of a step
        session_.keep();
        step_began_ = Clock::now();
        for (int64_t step = first; step <= run_.options.steps; ++step) {
            const StepPrograms::Step now = program_of(step);
            if (step == traced_step_) now.executor.record(traced_.emplace(TracedStep{step}).record);
            const auto asked = Clock::now();
            std::byte* const batch = prefetch.next();
            if (traced_) traced_->data = {asked, Clock::now()};
            one_step(step, now, batch, vote.mine());
            data_wait_s_ = prefetch.waited_s();
            const auto ended = Clock::now();
            if (traced_) write_trace(now.executor);
            const TrainOptions& o = run_.options;
            if (o.evaluate_every > 0 && step % o.evaluate_every == 0) evaluate(step);
            if (o.checkpoint_every > 0 && step % o.checkpoint_every == 0) save(step);
            step_began_ += Clock::now() - ended;  // no part of the next step
            if (!vote.ends(now.results)) continue;
            if (saved_ != step) save(step);
            throw Error(
                fmt::format("{} after step {}; the checkpoint is committed: start again to go on", vote.reason(), step),
                Fault::requeue);
        }
    }

    /// What has been trained is kept where the next size of a ramp cannot be made.
    StepPrograms::Step program_of(int64_t step) {
        try {
            return steps_.at(step);
        } catch (const NotMade&) {
            if (saved_ != step - 1) save(step - 1);
            throw;
        }
    }

    /// A step lasts from the end of the one before it to its own: what the host does between two is a part of one.
    void one_step(int64_t step, const StepPrograms::Step& now, std::byte* batch, Status status) {
        now.feed.set_step(run_.seed, step, batch);
        now.feed.set_status(status, batch);
        now.executor.run(batch, now.results.data());
        tell_capture(now.executor);
        evaluated_ = false;

        StepMetrics m;
        m.step = step;
        m.steps = run_.options.steps;
        m.loss = now.results.scalar("loss_sum") / now.results.scalar("count");
        const auto ended = Clock::now();
        m.seconds = std::chrono::duration<double>(ended - step_began_).count();
        if (traced_) traced_->whole = {step_began_, ended};
        counted_s_ = now.executor.steps_begun() > 1 ? counted_s_ + m.seconds : 0;  // an executor's first is not counted
        step_began_ = ended;
        loss_ = m.loss;
        const std::string marked = state_.judge(step, m.loss);
        if (!std::isfinite(m.loss))
            throw_diverged(step, "the loss", m.loss, "checkpoints before it are intact", marked);
        if (!marked.empty()) note(marked);
        if (!run_.metrics) return;
        m.grad_norm = now.results.scalar("grad_norm");
        m.lr = now.results.scalar("lr");
        if (scaled()) tell_scale(m, now);
        for (const RecordedResult& result : results_) {
            if (!result.why_not.empty()) continue;
            const auto count = static_cast<size_t>(now.results.count(result.name));
            now.results.read(result.name, m.results.emplace_back(result.name, std::vector<float>(count)).second.data());
        }
        m.tokens = session_.compiled().tokens_per_step / sizes_.full() * now.feed.batch();
        m.flops = session_.compiled().flops_per_step / static_cast<double>(sizes_.full()) *
                  static_cast<double>(now.feed.batch());
        m.peak_flops = peak_flops();
        m.memory_bytes = memory_bytes();
        const int64_t every = run_.options.log_every;
        run_.metrics->step(m, every > 0 && (step % every == 0 || step == 1 || step == run_.options.steps));
    }

    bool scaled() const { return has_loss_scale(session_.compiled().train().program); }

    void tell_scale(StepMetrics& m, const StepPrograms::Step& now) {
        m.scaled = true;
        m.loss_scale = now.results.scalar("loss_scale");
        m.skipped = static_cast<int64_t>(now.results.scalar("skipped"));
        // The first step of a resumed run has no count before it.
        m.skips = skipped_ < 0 ? m.skipped > 0 && !std::isfinite(m.grad_norm) : m.skipped > skipped_;
        skipped_ = m.skipped;
    }

    /// Of the process, or of the device where that is another memory.
    int64_t memory_bytes() { return host_visible_ ? resident_bytes() : session_.device().limits().used_bytes; }

    /// Once, when it is decided; with whose kernels run where the device had a choice.
    void tell_capture(const Executor& executor) {
        if (capture_told_ || (!executor.captured() && executor.not_captured().empty())) return;
        capture_told_ = true;
        note(executor.captured()
                 ? "the step is captured: from here on it is one launch"
                 : "the step is not captured, its kernels are launched one by one: " + executor.not_captured());
        for (const std::string& choice : executor.choices()) note("  kernel " + choice);
    }

    double peak_flops() {
        if (peak_ < 0)
            peak_ = std::max(session_.products().best_flops,
                             matrix_rate(session_.device(), matrix_type(session_.compiled().train().program))) *
                    static_cast<double>(session_.job().ranks);
        return peak_;
    }

    std::vector<TimeShare> shares() {
        std::map<std::string, double> seconds;
        const auto add = [&](const std::vector<Executor::Time>& times) {
            for (const Executor::Time& time : times) {
                using enum Executor::Time::Kind;
                const char* kind = time.kind == compute         ? "compute: "
                                   : time.kind == communication ? "communication: "
                                                                : "waiting: ";
                seconds[kind + time.name] += time.seconds;
            }
        };
        add(steps_.spent());
        add(session_.main().times());
        std::vector<TimeShare> list = {{"waiting: data", data_wait_s_}};
        if (steps_.waited_s() > 0) list.push_back({"waiting: programs of the ramp being compiled", steps_.waited_s()});
        for (const auto& [what, spent] : seconds) list.push_back({what, spent});
        return list;
    }

    void evaluate(int64_t step) {
        evaluated_ = true;
        require_same_data();
        if (evaluation_.empty()) return;
        const std::vector<EvaluatedMean> means = evaluation_.run(run_.seed, step);
        if (run_.metrics) run_.metrics->evaluation(step, means);
        const double held_out = means.front().value();
        if (std::isfinite(held_out)) return;
        const bool saved = saved_ == step;
        const std::string marked = saved ? state_.mark(step, "its loss on held-out data is not finite", true) : "";
        throw_diverged(step, "the loss on held-out data", held_out,
                       saved ? "this state is saved" : "this state is not saved", marked);
    }

    [[noreturn]] static void throw_diverged(int64_t step, const char* what, double value, const char* saved,
                                            const std::string& marked) {
        throw Error(fmt::format("step {}: {} is {}; {}{}{}\n"
                                "  lower the learning rate, clip the gradient norm or look at the data",
                                step, what, value, saved, marked.empty() ? "" : "; ", marked),
                    Fault::failed);
    }

    void save(int64_t step) {
        const auto begin = Clock::now();
        require_same_data();
        const auto moved = state_.save(step, run_.seed, data_, sizes_.samples_before(step + 1), loss_);
        for (const std::string& said : moved) note(said);
        saved_ = step;
        const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
        note(fmt::format("checkpoint of step {} committed and read back in {:.2f} s: {}", step, seconds,
                         run_.store.place()));
    }

    void require_same_data() {
        if (const std::string said = data_.require_unchanged(); !said.empty()) note(said);
    }

    void note(const std::string& line) {
        if (run_.metrics) run_.metrics->note(line);
    }

    const TrainingRun& run_;
    Session& session_;
    const BatchSizes& sizes_;
    Dataset data_;
    StepPrograms steps_;
    const std::vector<RecordedResult> results_;
    SavedState state_;
    Evaluation evaluation_;
    int64_t saved_ = 0;
    int64_t traced_step_ = 0;           ///< 0: none
    std::optional<TracedStep> traced_;  ///< the step at hand, where it is that one
    double counted_s_ = 0;              ///< of steps that main() has counted
    bool evaluated_ = false;
    double loss_ = 0;  ///< of the last step
    const bool host_visible_ = session_.device().limits().host_visible;
    bool capture_told_ = false;
    double peak_ = -1;
    double data_wait_s_ = 0;
    int64_t skipped_ = -1;  ///< steps without an update, known to who writes metrics
    Clock::time_point step_began_;
};

}  // namespace

void train(const TrainingRun& run) { Trainer(run).run(); }

}  // namespace orrery
