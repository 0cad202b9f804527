#pragma once
#include <chrono>
#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <utility>

#include "run/checkpoint/save/save_schedule.h"
#include "run/checkpoint/save/saved_state.h"
#include "run/control/preemption.h"
#include "run/train/evaluation.h"
#include "run/train/step_programs.h"
#include "run/train/time_left.h"
#include "run/train/train.h"

namespace orrery {

/// Decides when a training run saves checkpoints, asynchronously or between steps, and reports each save. Collective.
class Saving {
public:
    /// `run` and `data` must outlive this object.
    Saving(const TrainingRun& run, Dataset& data);

    SavedState& state() { return state_; }
    /// The step that was last saved, is being saved, or was resumed from; 0: none.
    int64_t newest() const { return newest_; }
    void resumed(int64_t step) { newest_ = committed_ = step; }

    /// Prepares asynchronous and automatic saves of a run that begins with step `first`. Called once.
    void prepare(int64_t first, const Evaluation& evaluation);
    /// Makes the executor wait for copies of an asynchronous save. Called before each of its steps.
    void guard(Executor& executor, const std::vector<SnapshotPlan>& snapshots);
    /// State of this rank's save, to put into the next step's status word (StopVote).
    Status status() const { return state_.status(); }
    /// Called after each step with the status of all ranks together. Throws Error if a save failed: on every rank after
    /// the same step.
    void look(int64_t step, Status all);
    /// Records the held-out loss of a step for retention: a checkpoint of the step stores it.
    void evaluated(int64_t step, double loss) { evaluated_ = {step, loss}; }
    /// Records the duration of a step and all work until the next one, except the save.
    void step_took(double seconds) { time_left_.step_took(seconds); }
    /// Whether a rank that was asked to stop has time for one more step and a save.
    bool time_left() const;
    /// Saves the step if it is due, or the round asks for it. `step_s`: mean duration of a step.
    void save_if_due(int64_t step, Status all, double loss, double step_s, bool asked);
    /// Saves a step. Returns once its checkpoint is committed and read back.
    void save(int64_t step, double loss);
    /// Waits for the save in progress, if any; throws its error.
    void finish();
    /// Waits for the save in progress of a run that has failed with another error. Returns the text to append to that
    /// error; "" if the save succeeded.
    std::string finish_too();
    /// Ends the run because ranks were asked to stop; saves the step first if `all` says that there is time.
    [[noreturn]] void end(int64_t step, Status all, const StopVote& vote, double loss);
    /// Prints once how many saves were skipped, and how many waited for an earlier save.
    void close();
    /// Called when this rank fails. If a save is in progress, reports the error to the other ranks, so that none waits
    /// for this rank. Also calls close() and record().
    void let_go(const std::exception& error);

    /// Seconds that saves have blocked steps since the last call.
    double take_held_s() { return std::exchange(held_since_s_, 0); }
    /// Writes the counts and times of saves to the run record.
    void record() const;

private:
    /// Seconds since the save in progress began, without its pause; -1: no save is in progress.
    double saving_s() const;
    std::optional<double> eval_loss_of(int64_t step) const {
        return evaluated_.first == step ? std::optional(evaluated_.second) : std::nullopt;
    }
    bool waits(int64_t step);
    void wait(int64_t step);
    void leave_out(int64_t step);
    void tell_left_out(const char* when);
    void require_saved(int64_t step);
    void set_next(int64_t step, int64_t interval);
    void begin(int64_t step, double loss, double step_s);
    void tell(const std::optional<SavedState::Saved>& saved);
    void hold(double seconds);
    double between_failures_s() const;
    void note(const std::string& line) const;
    void require_same_data();

    static constexpr int64_t told_skips = 3;  ///< skips reported one by one; later ones as a count, when it has
                                              ///< doubled and at the end

    const TrainingRun& run_;
    Session& session_;
    Dataset& data_;
    SavedState state_;
    SaveSchedule schedule_;
    TimeLeft time_left_;
    bool beside_ = false;                          ///< whether saves are asynchronous
    int64_t newest_ = 0, committed_ = 0;           ///< step last saved or being saved; step last committed
    std::chrono::steady_clock::time_point begun_;  ///< when the last asynchronous save began
    std::pair<int64_t, double> evaluated_{-1, 0};  ///< step and loss of the last evaluation
    int64_t begun_at_ = 0;                         ///< wall-clock start of the last asynchronous save, s since 1970
    int64_t interval_ = 0;                         ///< steps between saves in "auto" mode, computed at the last save
    int64_t told_interval_ = 0;
    int64_t saved_ = 0, skipped_ = 0;
    int64_t begins_ = 0;
    int64_t told_skipped_ = told_skips;
    int64_t waited_ = 0;  ///< number of saves that waited for an earlier save
    double waited_s_ = 0;
    bool closed_ = false;
    double held_s_ = 0, held_since_s_ = 0;  ///< seconds that saves blocked steps: total; since take_held_s()
    double beside_s_ = 0;                   ///< seconds that asynchronous saves took
};

}  // namespace orrery
