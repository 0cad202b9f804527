#include "run/train/train.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "base/json.h"
#include "base/seconds.h"
#include "base/text.h"
#include "compile/passes/loss_scale.h"
#include "run/checkpoint/restore/pretrained.h"
#include "run/control/preemption.h"
#include "run/metrics/breakdown.h"
#include "run/record/run_costs.h"
#include "run/record/step_trace.h"
#include "run/train/bad_gradient.h"
#include "run/train/evaluation.h"
#include "run/train/largest_load.h"
#include "run/train/round_results.h"
#include "run/train/saving.h"
#include "run/train/step_report.h"

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
          steps_(session_, data_, run.options.steps),
          capacity_(session_.compiled().capacities),
          results_(session_.compiled()),
          saving_(run, data_),
          state_(saving_.state()),
          evaluation_(session_, data_, run.options.evaluate_batches) {}

    void run() {
        try {
            train();
            saving_.record();
        } catch (const std::exception& error) {
            saving_.let_go(error);
            throw;
        }
    }

private:
    void train() {
        require_same_data();  // the data was opened before compiling and joining, and may have changed
        agree();
        session_.at("resume");
        const SavedState::Resumed resumed = state_.resume(run_.seed, data_, run_.from_step, run_.went_on);
        if (run_.accepted) run_.accepted();
        for (const std::string& said : resumed.said) note(said);
        if (resumed.step > 0)
            note(fmt::format("resumed from step {}: {}", resumed.step, run_.store.place()));
        else if (!run_.weights.empty())
            if (const auto fresh = load_weights(session_, run_.weights, run_.sources); !fresh.empty())
                note(fresh_text(fresh, run_.weights));
        const std::vector<std::string> differ = session_.settle_bits(run_.code, resumed.bits, resumed.step);
        if (run_.record) run_.record({{"bits", to_json(session_.bits())}, {"bits_differ", differ}});
        const int64_t first = resumed.step + 1;
        saving_.resumed(resumed.step);
        if (resumed.capacity) capacity_.resume(*resumed.capacity);
        steps_.begin_round(resumed.round_after);
        choose_traced(first);
        if (first > run_.options.steps)
            note(fmt::format("step {} of {} is already done", first - 1, run_.options.steps));
        for (const std::string& line : differ) note(line);
        if (const ProductKinds kinds = session_.device().products(); !kinds.names.empty())
            if (kinds.in_use != kinds.names.front()) note("products: " + kinds.in_use);
        for (const BitSource& source : session_.bits())
            if (source.name == order_of_sums && source.value.starts_with("any"))
                note(fmt::format("order of sums: {}; a repeated run differs in the last bits", source.value));
        for (const std::string& line : session_.notes()) note(line);
        for (const std::string& line : results_.left_out()) note(line);
        if (const std::string told = data_.told(sizes_.samples_before(run_.options.steps + 1)); !told.empty())
            note(told);
        if (run_.metrics) run_.metrics->resume(resumed.step);
        const auto begin = Clock::now();
        if (first <= run_.options.steps) steps(first);
        const double seconds = seconds_since(begin);
        if (!evaluated_) evaluate(std::max(resumed.step, run_.options.steps));
        session_.at("save");
        saving_.finish();
        const bool saves = run_.options.checkpoint_final && saving_.newest() != run_.options.steps;
        if (saves && first <= run_.options.steps) saving_.save(run_.options.steps, loss_);
        const bool counted = first <= run_.options.steps && write_costs();
        if (run_.metrics && first <= run_.options.steps) tell_shares(seconds);
        if (run_.close && counted)  // only if this run wrote costs.json
            if (const std::string said = run_.close(); !said.empty()) note(said);
        if (const int64_t skipped = report_.skipped(); skipped > 0)
            note(fmt::format("{} of {} steps skipped: their gradients overflowed under the loss scale", skipped,
                             run_.options.steps));
        if (capacity_.any() && first <= run_.options.steps) note(text_of(capacity_));
        saving_.close();
        if (run_.metrics) run_.metrics->finish();
    }

    /// Throws Error if settings differ between ranks: then only some ranks might take part in an evaluation or a save.
    void agree() const {
        const TrainOptions& o = run_.options;
        Agreement parts = {{"train.steps", std::to_string(o.steps)},
                           {"train.evaluate_every", std::to_string(o.evaluate_every)},
                           {"train.evaluate_batches", std::to_string(o.evaluate_batches)},
                           {"train.max_skips", std::to_string(o.max_skips)},
                           {"checkpoint.every_steps", std::to_string(o.checkpoint_every)},
                           {"checkpoint.every", o.checkpoint_mtbf_s > 0 ? "auto" : "steps"},
                           {"checkpoint.async", o.checkpoint_async ? "true" : "false"},
                           {"checkpoint.keep_every_steps", std::to_string(run_.keep.every_steps)},
                           {"checkpoint.keep_hourly", std::to_string(run_.keep.hourly)},
                           {"checkpoint.keep_daily", std::to_string(run_.keep.daily)},
                           {"checkpoint.keep_best", std::to_string(run_.keep.best)},
                           {"checkpoint.final", o.checkpoint_final ? "true" : "false"},
                           {"run.seed", std::to_string(run_.seed)},
                           {"--from-step", std::to_string(run_.from_step)},
                           {"weights to start from", run_.weights.empty() ? "none" : "given"},
                           {"sequences per step", std::to_string(data_.spec().sequences_per_step)}};
        const Agreement of_data = data_.agreement();
        parts.insert(parts.end(), of_data.begin(), of_data.end());
        session_.agree("run settings", parts);
    }

    /// Chooses the step to trace. By the tenth step memory has been touched and libraries are initialised.
    void choose_traced(int64_t first) {
        if (run_.trace.empty()) return;
        const int64_t last = run_.options.steps;
        check_trace(run_.trace, run_.trace_step, last, run_.metrics != nullptr);
        traced_step_ = run_.trace_step > 0 ? run_.trace_step : std::min(first + 9, last);
        if (traced_step_ < first && first <= last)
            note(fmt::format("no trace: step {} is already done, the run resumes from step {}", traced_step_, first));
    }

    void write_trace(const Executor& executor) {
        for (const std::string& said : write_step_trace(session_, executor, *traced_, run_.trace)) note(said);
        traced_.reset();
    }

    /// Writes costs.json; returns whether it was written. Only rank 0 reports why it was not.
    bool write_costs() {
        if (run_.costs.empty()) return false;
        const std::string why_not =
            session_.compiled().round.names().size() > 1
                ? "costs.json is not written: the round has several programs; orrery calibrate measures their kernels"
                : write_run_costs(session_, session_.main().steps_begun() - 1, mean_step_s(), run_.costs);
        if (!why_not.empty()) note(why_not);
        return why_not.empty();
    }

    void steps(int64_t first) {
        session_.at("prepare");
        steps_.at(first, capacity_.now());
        const HostMemory one(session_.device(), steps_.batch_bytes()), other(session_.device(), one.bytes());
        Prefetch prefetch([this](int64_t step, std::byte* batch) { steps_.fill(step, batch); }, first, one.data(),
                          other.data());
        const StopVote vote(session_.job().ranks);
        if (run_.metrics)
            if (const std::string line = report_.measure_rate(); !line.empty()) note(line);
        if (run_.metrics) run_.metrics->header(has_, results_.values());
        saving_.prepare(first, evaluation_);
        session_.keep();
        if (run_.resumed) run_.resumed(first - 1);
        steps_.send_again(first - 1);
        step_began_ = Clock::now();
        for (int64_t step = first; step <= run_.options.steps; ++step) {
            const StepPrograms::Step ready = prepare(step);
            const auto begun = Clock::now();
            session_.at("read");
            std::byte* const batch = prefetch.next();
            const double waited_before = std::exchange(data_wait_s_, prefetch.waited_s());
            if (traced_) traced_->data = {begun, Clock::now()};
            const StepPrograms::Step now = run_until_it_fits(step, ready, batch, vote);
            StepMetrics metrics = judged(step, now);
            const Asked asked = run_between(step, vote);
            end_step(metrics, now, data_wait_s_ - waited_before);
            const auto ended = Clock::now();
            if (traced_) write_trace(now.executor);
            const Status all = voted(now, vote);
            session_.at("save");
            saving_.look(step, all);
            const int64_t every = run_.options.evaluate_every;
            // The last step may be one of the best, so its held-out loss is evaluated before its save.
            const bool may_be_best = run_.keep.best > 0 && step == run_.options.steps && all < Status::stop;
            if ((every > 0 && step % every == 0) || may_be_best || asked.evaluate) evaluate(step);
            session_.at("save");
            if (all >= Status::stop) {
                steps_.settle();
                saving_.end(step, all, vote, loss_);
            }
            saving_.step_took(seconds_since(begun));  // without the save, which is timed separately
            saving_.save_if_due(step, all, loss_, mean_step_s(), asked.save);
            step_began_ += Clock::now() - ended;  // the save is not part of the next step
        }
        steps_.settle();  // peers may still need this rank
    }

    /// Makes the program and executor of a step ready, for the current capacity.
    StepPrograms::Step prepare(int64_t step) {
        const StepPrograms::Step now = steps_.at(step, capacity_.now());
        saving_.guard(now.executor, now.snapshots);
        if (step == traced_step_) {
            if (!traced_) traced_.emplace(TracedStep{step});
            traced_->record = {};  // of the last run, if the step runs again
            now.executor.record(traced_->record);
        }
        return now;
    }

    /// Runs a step, and while it overflows runs it again with the same batch and a larger capacity. `first`: the
    /// program of its first run. Returns the program that ran last.
    StepPrograms::Step run_until_it_fits(int64_t step, const StepPrograms::Step& first, std::byte* batch,
                                         const StopVote& vote) {
        std::optional<StepPrograms::Step> larger;  // not assigned: it has references
        for (;;) {
            const StepPrograms::Step& now = larger ? *larger : first;
            session_.at("step");
            now.feed.set_step(run_.seed, step, batch);
            now.feed.set_status(vote.mine(saving_.status(), saving_.time_left()), batch);
            now.executor.run(batch, now.results.data());
            tell_capture(now.executor);
            if (!overflows(step, now)) return now;
            larger.emplace(prepare(step));
        }
    }

    /// Actions that the round asks for after a step.
    struct Asked {
        bool evaluate = false, save = false;
    };

    /// Runs the programs of the round that follow a step and belong to it. Returns the actions that do.
    Asked run_between(int64_t step, const StopVote& vote) {
        Asked asked;
        ran_.clear();
        steps_.after(
            step,
            [&](StepPrograms::BatchlessProgram& program) {
                saving_.guard(program.executor, program.program.snapshots);
                set_step(program.program.plan.program, program.places, run_.seed, step, program.inputs.data());
                set_status(program.program.plan.program, program.places,
                           vote.mine(saving_.status(), saving_.time_left()), program.inputs.data());
                program.executor.run(program.inputs.data(), program.results.data());
                for (Executor* const awaiting : program.awaits) awaiting->start();
                if (std::ranges::find(ran_, &program) == ran_.end()) ran_.push_back(&program);
                if (run_.metrics) results_.read(program.program.plan.program, program.results);
                if (nothing_counts(program)) throw_nothing_counts(step);
                if (const double norm = program.results.scalar(guard_name); !std::isfinite(norm))
                    throw_guarded(step, program.program.entry.name, norm);
            },
            [&](std::string_view action) { (action == "save" ? asked.save : asked.evaluate) = true; });
        return asked;
    }

    /// The status of all ranks after a step: that of its results or, as steps of islands have none, of the last program
    /// after it in which the islands met; where none did, Status::go_on.
    Status voted(const StepPrograms::Step& now, const StopVote& vote) const {
        const HostResults* results = &now.results;
        if (session_.compiled().islands.any()) {
            const auto met = std::find_if(ran_.rbegin(), ran_.rend(), [](auto* ran) { return ran->awaits.empty(); });
            results = met == ran_.rend() ? nullptr : &(*met)->results;
        }
        return results ? vote.all(*results, saving_.status(), saving_.time_left()) : Status::go_on;
    }

    [[noreturn]] void throw_guarded(int64_t step, const std::string& program, double squares) {
        const std::string save = saving_.finish_too();
        session_.at("gradient");
        throw Error(fmt::format("step {}: the gradients given to program {} are not finite (sum of squares {}); params "
                                "and states are unchanged by it, and checkpoints before the step are intact{}\n  lower "
                                "the learning rate, or check the values given to update:gradient",
                                step, program, squares, save),
                    Fault::failed);
    }

    /// Whether the step that ran overflowed, so that it changed nothing and runs again. All ranks find the same.
    bool overflows(int64_t step, const StepPrograms::Step& now) {
        if (!has_.capacity) return false;
        step_capacity_ = capacity_.now();
        const bool fits = now.results.scalar(overflow_name) <= 0;
        if (!fits && capacity_.grow()) {
            if (++told_again_ <= 3)
                note(fmt::format("step {} overflows capacity {:g}: it runs again with {:g}", step, step_capacity_,
                                 capacity_.now()));
            return true;
        }
        if (fits)
            capacity_.fitted(now.results.scalar(below_name) <= 0);
        else if (std::isfinite(now.results.scalar("loss_sum")))  // otherwise end_step says so
            throw_overflow(step, now);
        state_.set_capacity(capacity_.saved());
        return false;
    }

    [[noreturn]] void throw_overflow(int64_t step, const StepPrograms::Step& now) {
        const std::string largest = largest_load(session_, now.executor);
        const std::string save = saving_.finish_too();
        session_.at("capacity");
        throw Error(
            fmt::format("step {} overflows the largest capacity, {:g}{}{}; no param was changed; "
                        "checkpoints before it are intact{}\n"
                        "  declare a larger capacity (o.capacity; `max_capacity` of nn.moe), or balance the loads",
                        step, step_capacity_, largest.empty() ? "" : ": ", largest, save),
            Fault::failed);
    }

    /// Mean time in seconds of the steps since the last one that was an executor's first; 0: unknown.
    double mean_step_s() const { return counted_ > 0 ? counted_s_ / static_cast<double>(counted_) : 0; }

    /// Ends the run because the loss is 0 / 0: the weights have become NaN, although earlier steps have not diverged.
    [[noreturn]] void throw_nothing_counts(int64_t step) {
        const std::string save = saving_.finish_too();
        session_.at("loss");
        const int64_t first = sizes_.samples_before(step), samples = sizes_.batch(step);
        throw Error(
            fmt::format(
                "step {}: no target in its {}{} counts for the loss (the script's count is 0): all targets are ignored "
                "or masked, from {} on; checkpoints before it are intact\n  remove such samples from the data, or "
                "increase train.sequences_per_step; `orrery data RUN --step {}` prints them{}",
                step, plural(samples, "sample"),
                session_.compiled().islands.any() ? ", nor in those of earlier steps since the islands last met," : "",
                data_.where(Split::train, first), step, save),
            Fault::failed);
    }

    /// Judges a step that ran, while params and states are those that it has left. Returns its metrics so far.
    StepMetrics judged(int64_t step, const StepPrograms::Step& now) {
        evaluated_ = false;
        StepMetrics m;
        m.step = step;
        m.steps = run_.options.steps;
        const double count = now.results.scalar("count");
        const bool idle = count == 0 && session_.compiled().islands.any();  // the step has changed nothing
        if (count == 0 && !idle) throw_nothing_counts(step);
        m.loss = now.results.scalar("loss_sum") / count;
        if (!idle) loss_ = m.loss;
        if (run_.finished) run_.finished(step);
        const std::string marked = idle ? "" : state_.judge(step, m.loss);
        if (!idle && !std::isfinite(m.loss))
            throw_diverged(step, "the loss", m.loss, "checkpoints before it are intact", marked);
        if (!marked.empty()) note(marked);
        if (const auto norm = judged_norm(session_.compiled(), now.program); !idle && !norm.empty())
            require_finite(step, now, count, norm);
        if (!idle && has_loss_scale(now.program) && run_.options.max_skips > 0) count_skips(step, now);
        if (run_.metrics) {
            results_.begin();
            results_.read(now.program, now.results);
        }
        return m;
    }

    /// Reports a step with the programs that follow it. It lasts from the end of the previous step to its own end,
    /// including host work between steps.
    void end_step(StepMetrics& m, const StepPrograms::Step& now, double data_s) {
        const auto ended = Clock::now();
        m.seconds = std::chrono::duration<double>(ended - step_began_).count();
        if (traced_) traced_->whole = {step_began_, ended};
        // an executor's first step is not counted
        const bool counts = now.executor.steps_begun() > 1;
        counted_s_ = counts ? counted_s_ + m.seconds : 0;
        counted_ = counts ? counted_ + 1 : 0;
        step_began_ = ended;
        if (!run_.metrics) return;
        m.data_s = data_s;
        m.has = has_;
        m.capacity = step_capacity_;
        m.again = capacity_.again();
        m.results = results_.values();
        m.checkpoint_s = saving_.take_held_s();
        report_.tell(m, now, ran_);
        const int64_t every = run_.options.log_every;
        run_.metrics->step(m, every > 0 && (m.step % every == 0 || m.step == 1 || m.step == run_.options.steps));
    }

    /// Ends the run if a gradient is not finite and there is no loss scale: later steps could not recover, and no
    /// checkpoint must store the state.
    void require_finite(int64_t step, const StepPrograms::Step& now, double count, std::string_view norm_of) {
        double norm = now.results.scalar(norm_of);
        if (norm_of == guard_name) norm = std::sqrt(norm) / count;
        norm = std::abs(norm);  // prints NaN without a sign
        if (std::isfinite(norm)) return;
        const bool guarded = norm_of == guard_name;
        const std::string first = guarded ? first_bad_gradient(session_, now.executor) : "";
        const bool saved = saving_.newest() == step - 1 && step > 1;
        const std::string why = fmt::format("the norm of the gradients of step {} is {}", step, norm);
        const std::string marked = saved ? "; " + state_.mark(step - 1, why, true) : "";
        const std::string save = saving_.finish_too();
        session_.at("gradient");
        throw Error(fmt::format("step {}: the norm of the gradients is {}{}; {}; checkpoints before it are intact{}{}\n"
                                "  lower the learning rate, scale the loss down or check the data",
                                step, norm,
                                !guarded        ? ""
                                : first.empty() ? ": all gradients are finite, the sum of their squares is not"
                                                : ": the first param whose gradient is not finite is " + first,
                                guarded ? "the update is not made" : "its update is not saved", marked, save),
                    Fault::failed);
    }

    /// Ends the run after max_skips steps in a row without an update at the min loss scale: the run cannot recover.
    void count_skips(int64_t step, const StepPrograms::Step& now) {
        const auto skipped = static_cast<int64_t>(now.results.scalar("skipped"));
        const double scale = now.results.scalar("loss_scale");
        if (all_skips_ < 0) all_skips_ = step == 1 ? 0 : skipped;  // a resumed run's first step has no earlier count
        const bool more = skipped > std::exchange(all_skips_, skipped);
        const double least = session_.compiled().loss_scale ? session_.compiled().loss_scale->least : 0;
        skips_at_least_ = more && scale <= least * (1 + 1e-6) ? skips_at_least_ + 1 : 0;
        if (skips_at_least_ < run_.options.max_skips) return;
        const std::string first = first_bad_gradient(session_, now.executor);
        const std::string save = saving_.finish_too();
        session_.at("gradient");
        throw Error(
            fmt::format("step {}: no update in {} (train.max_skips): the gradients are not finite at the min loss "
                        "scale, {:.6g}{}; params and states are those of step {}{}\n"
                        "  check the model and the data, lower loss_scale.least of train_with, or set "
                        "train.precision = \"bf16\"",
                        step, plural(skips_at_least_, "step") + " in a row", scale,
                        first.empty() ? "" : ": the first param with such a gradient is " + first,
                        step - skips_at_least_, save),
            Fault::failed);
    }

    /// Reports once whether the step is captured, and which kernels were chosen where the device had a choice.
    void tell_capture(const Executor& executor) {
        if (capture_told_ || (!executor.captured() && executor.not_captured().empty())) return;
        capture_told_ = true;
        note(executor.captured()
                 ? "the step is captured: from now on it is one launch"
                 : "the step is not captured, its kernels are launched one by one: " + executor.not_captured());
        for (const std::string& choice : executor.choices()) note("  kernel " + choice);
    }

    void tell_shares(double seconds) {
        const std::vector<TimeShare> list = report_.shares(data_wait_s_);
        note(breakdown_text(list, seconds));
        if (const std::string line = report_.measure_rate_again(seconds); !line.empty()) note(line);
        if (run_.record) run_.record({{"time_s", parts_of(list, seconds)}, {"matrix_rate", report_.rates()}});
    }

    void evaluate(int64_t step) {
        evaluated_ = true;
        session_.at("evaluation");
        require_same_data();
        if (evaluation_.empty()) return;
        const std::vector<EvaluatedMean> means = evaluation_.run(run_.seed, step);
        if (means.front().count == 0)  // 0 / 0 does not mean that the state has diverged
            return note(
                fmt::format("step {}: no loss on held-out data: no target in the samples counts (the script's count is "
                            "0): all are ignored or masked",
                            step));
        if (run_.metrics) run_.metrics->evaluation(step, means, has_.nats);
        const double held_out = means.front().value();
        saving_.evaluated(step, held_out);
        if (std::isfinite(held_out)) return;
        const bool saved = saving_.newest() == step;
        const std::string marked = saved ? state_.mark(step, "its loss on held-out data is not finite", true) : "";
        throw_diverged(step, "the loss on held-out data", held_out,
                       saved ? "this state is saved" : "this state is not saved", marked);
    }

    [[noreturn]] void throw_diverged(int64_t step, const char* what, double value, const char* saved,
                                     const std::string& marked) {
        const std::string save = saving_.finish_too();
        session_.at("loss");
        throw Error(fmt::format("step {}: {} is {}; {}{}{}{}\n"
                                "  lower the learning rate, clip the gradient norm or check the data",
                                step, what, value, saved, marked.empty() ? "" : "; ", marked, save),
                    Fault::failed);
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
    CapacityChoice capacity_;
    double step_capacity_ = 0;  ///< capacity with which the last step ran
    int told_again_ = 0;        ///< overflows in this start; the first three are printed
    RoundResults results_;
    const TrainedNumbers has_ = trained_numbers(session_.compiled(), run_.nominal_flops > 0);
    std::vector<const StepPrograms::BatchlessProgram*> ran_;  ///< programs of the round that followed the last step
    int64_t all_skips_ = -1;                                  ///< skipped steps since the run's first; -1: unknown
    int64_t skips_at_least_ = 0;                              ///< skipped steps in a row at the min loss scale
    StepReport report_{session_, steps_, run_.nominal_flops};
    Saving saving_;
    SavedState& state_;
    Evaluation evaluation_;
    int64_t traced_step_ = 0;           ///< number of the traced step; 0: none
    std::optional<TracedStep> traced_;  ///< trace of the current step, if it is the traced one
    double counted_s_ = 0;              ///< seconds of the steps over which mean_step_s() averages
    int64_t counted_ = 0;               ///< their number
    bool evaluated_ = false;
    double loss_ = 0;
    bool capture_told_ = false;
    double data_wait_s_ = 0;
    Clock::time_point step_began_;
};

}  // namespace

void train(const TrainingRun& run) { Trainer(run).run(); }

}  // namespace orrery
