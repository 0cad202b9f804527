#include "run/train/saving.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "base/json.h"
#include "base/limits.h"
#include "base/seconds.h"
#include "base/text.h"
#include "run/control/stop_request.h"
#include "run/metrics/step_metrics.h"

namespace orrery {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

Saving::Saving(const TrainingRun& run, Dataset& data)
    : run_(run),
      session_(run.session),
      data_(data),
      state_(run.session, run.store, run.keep, run.published, run.suspect_factor, run.drop),
      schedule_(run.options, run.keep),
      time_left_(run.grace_s) {}

void Saving::note(const std::string& line) const {
    if (run_.metrics) run_.metrics->note(line);
}

void Saving::require_same_data() {
    if (const std::string said = data_.require_unchanged(); !said.empty()) note(said);
}

void Saving::hold(double seconds) {
    held_s_ += seconds;
    held_since_s_ += seconds;
}

void Saving::prepare(int64_t first, const Evaluation& evaluation) {
    const bool automatic = schedule_.automatic();
    if (const Islands& islands = session_.compiled().islands; automatic && islands.any())
        throw Error(islands.origin,
                    "checkpoint.every = \"auto\" is not supported with islands, which do not vote in each step\n  set "
                    "checkpoint.every_steps");
    if (automatic) schedule_.set_next(first + 9);  // tenth step: memory was touched, times are typical
    if (!run_.options.checkpoint_async || (run_.options.checkpoint_every == 0 && !automatic)) return;
    beside_ = true;
    state_.save_beside();
    evaluation.for_each(
        [&](Executor& executor, const std::vector<SnapshotPlan>& plans) { state_.guard(executor, plans); });
    note(state_.told_of_copy());
}

void Saving::guard(Executor& executor, const std::vector<SnapshotPlan>& snapshots) {
    if (beside_ && executor.steps_begun() == 0) state_.guard(executor, snapshots);
}

void Saving::look(int64_t step, Status all) {
    state_.step_ended();
    if (all == Status::save_failed) {
        require_saved(step);
        throw Error(fmt::format("an asynchronous save failed\n  the run ends after step {}; checkpoints before it "
                                "are intact",
                                step),
                    Fault::failed);
    }
    if (state_.status() == Status::go_on) tell(state_.finished());  // the next status reports a failed save
}

/// Throws Error on every rank if the save failed on any. Collective.
void Saving::require_saved(int64_t step) {
    const auto said = session_.exchange("failed save", state_.failure(), WaitLimit::files);
    const auto failed = std::find_if(said.begin(), said.end(), [](const auto& why) { return !why.empty(); });
    if (failed == said.end()) return;
    throw Error(fmt::format("{}\n  the run ends after step {}; checkpoints before it are intact", *failed, step),
                Fault::failed);
}

void Saving::set_next(int64_t step, int64_t interval) {
    schedule_.set_next(step + interval);
    if (interval == std::exchange(told_interval_, interval)) return;
    note(fmt::format(
        "from step {} on, a checkpoint is saved every {} (checkpoint.every = \"auto\"): a node fails every {:.3g} h",
        step, plural(interval, "step"), between_failures_s() / 3600));
}

double Saving::between_failures_s() const {
    if (!schedule_.automatic()) return 0;
    const Job& job = session_.job();
    const int64_t here = std::max<int64_t>(1, job.local_ranks);
    return run_.options.checkpoint_mtbf_s / static_cast<double>((job.ranks + here - 1) / here);
}

/// Saves a step if it is due, or skips it; all ranks decide the same. In "auto" mode, the next step to save is set once
/// all ranks have finished the save before.
void Saving::save_if_due(int64_t step, Status all, double loss, double step_s, bool asked) {
    if (all == Status::go_on && schedule_.asks_next()) set_next(newest_, interval_);
    if (!asked && !schedule_.due(step, all == Status::saving, step_s > 0)) return;
    if (beside_ && all == Status::saving && step != run_.options.steps) {
        if (!asked && !waits(step)) return leave_out(step);
        wait(step);
    }
    if (beside_) return begin(step, loss, step_s);
    const auto began = Clock::now();
    save(step, loss);
    if (!schedule_.automatic() || !(step_s > 0)) return;
    const double cost = seconds_since(began);
    set_next(step, state_.interval({cost, cost, step_s}, between_failures_s()));
}

/// Whether a due step waits for the save in progress, instead of being skipped. If a retention rule depends on the
/// clock, rank 0's clock decides.
bool Saving::waits(int64_t step) {
    DueStep due{step, eval_loss_of(step).has_value(), begun_at_, begun_at_};
    if (schedule_.waits(due)) return true;
    if (!needs_clock(run_.keep)) return false;
    due.now = static_cast<int64_t>(wall_time());
    const bool mine = session_.job().rank == 0 && schedule_.waits(due);
    return !session_.from_first("due by the clock", mine ? "needed" : "", WaitLimit::files).empty();
}

void Saving::wait(int64_t step) {
    const auto began = Clock::now();
    state_.wait();
    require_saved(step);
    const double seconds = seconds_since(began);
    hold(seconds);
    waited_s_ += seconds;
    if (++waited_ <= told_skips)
        note(fmt::format("step {} was blocked for {:.2f} s: its checkpoint waited for that of step {}", step, seconds,
                         newest_));
}

void Saving::leave_out(int64_t step) {
    schedule_.left_out();
    ++skipped_;
    if (skipped_ <= told_skips)
        return note(fmt::format("no checkpoint of step {}: the save of step {} is still in progress", step, newest_));
    if (skipped_ >= 2 * told_skipped_) tell_left_out("so far");
}

void Saving::tell_left_out(const char* when) {
    told_skipped_ = skipped_;
    note(fmt::format(
        "of {} checkpoints that were due {} {} were skipped and {} waited ({:.2f} s), because the save before was "
        "still in progress: increase checkpoint.every_steps, or set checkpoint.async = false",
        begins_ + skipped_, when, skipped_, waited_, waited_s_));
}

void Saving::begin(int64_t step, double loss, double step_s) {
    finish();  // waits for a save in progress, which can exist only at the last step
    const auto began = begun_ = Clock::now();
    require_same_data();
    schedule_.began(step_s > 0);
    begun_at_ = static_cast<int64_t>(wall_time());
    ++begins_;
    state_.begin(step, run_.seed, data_, session_.compiled().sizes.samples_before(step + 1), loss, eval_loss_of(step),
                 {step_s > 0 ? between_failures_s() : 0, step_s});
    if (step == run_.options.steps) state_.step_ended();
    newest_ = step;
    held_since_s_ += seconds_since(began);
}

void Saving::tell(const std::optional<SavedState::Saved>& saved) {
    if (!saved) return;
    committed_ = saved->step;
    if (saved->interval > 0) interval_ = saved->interval;
    ++saved_;
    held_s_ += saved->held_s;
    beside_s_ += saved->whole_s;
    time_left_.save_took(saved->whole_s - state_.paused_s());  // without pauses, since a save at a stop does not pause
    for (const std::string& said : saved->said) note(said);
    note(
        fmt::format("checkpoint of step {} committed and read back in {:.2f} s asynchronously, steps blocked for "
                    "{:.4f} s: {}",
                    saved->step, saved->whole_s, saved->held_s, run_.store.place()));
}

void Saving::finish() {
    const auto began = Clock::now();
    const auto saved = state_.finish();
    if (saved) hold(seconds_since(began));
    tell(saved);
}

std::string Saving::finish_too() {
    try {
        finish();
        return "";
    } catch (const std::exception& problem) {
        return fmt::format("; {}", problem.what());
    }
}

void Saving::save(int64_t step, double loss) {
    finish();
    const auto began = Clock::now();
    require_same_data();
    const auto moved = state_.save(step, run_.seed, data_, session_.compiled().sizes.samples_before(step + 1), loss,
                                   eval_loss_of(step));
    for (const std::string& said : moved) note(said);
    newest_ = committed_ = step;
    ++saved_;
    const double seconds = seconds_since(began);
    hold(seconds);
    time_left_.save_took(seconds);
    note(fmt::format("checkpoint of step {} committed and read back in {:.2f} s: {}", step, seconds,
                     run_.store.place()));
}

double Saving::saving_s() const {
    return state_.status() == Status::saving ? seconds_since(begun_) - state_.paused_s() : -1;
}

bool Saving::time_left() const { return time_left_.fits(seconds_since_asked(), saving_s()); }

/// Ends the run at a stop request. Finishes a save in progress in any case, since it has the newest state.
void Saving::end(int64_t step, Status all, const StopVote& vote, double loss) {
    const double needed_s = time_left_.needed_s(saving_s());
    finish();
    if (all == Status::stop && committed_ != step) save(step, loss);
    if (committed_ == step)
        throw Error(
            fmt::format("{} after step {}; the checkpoint is committed: start again to resume", vote.reason(), step),
            Fault::requeue);
    const std::string from =
        committed_ == 0 ? "there is no checkpoint: start again from scratch"
                        : fmt::format("the newest checkpoint is of step {}: start again to resume", committed_);
    throw Error(
        fmt::format("{} after step {}, which is not saved: the rest of run.grace_s = {:g} is too short for a step "
                    "and a save ({:.2f} s on this rank); {}",
                    vote.reason(), step, time_left_.grace_s(), needed_s, from),
        Fault::requeue);
}

void Saving::close() {
    if (!std::exchange(closed_, true) && std::max(skipped_, waited_) > told_skips) tell_left_out("in all");
}

void Saving::let_go(const std::exception& error) {
    const bool waits = beside_ && state_.status() == Status::saving && session_.job().ranks > 1;
    if (waits && !(fault_of(error) == Fault::peer && session_.other_stopped())) session_.fail(explain(error));
    try {
        close();
        record();
    } catch (const std::exception& second) {  // only printed: the first error is why the run ends
        note(second.what());
    }
}

void Saving::record() const {
    if (!run_.record || (saved_ == 0 && skipped_ == 0)) return;
    run_.record({{"checkpoints",
                  {{"saved", saved_},
                   {"skipped", skipped_},
                   {"waited", waited_},
                   {"held_s", held_s_},
                   {"beside_s", beside_s_}}}});
}

}  // namespace orrery
