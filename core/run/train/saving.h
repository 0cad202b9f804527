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

/// When a training run saves, beside its steps or between them, and what it says of that. Collective.
class Saving {
public:
    /// `run` and `data` must outlive it.
    Saving(const TrainingRun& run, Dataset& data);

    SavedState& state() { return state_; }
    /// Step that is saved, or is being, or that this start went on from; 0: none.
    int64_t newest() const { return newest_; }
    void resumed(int64_t step) { newest_ = committed_ = step; }

    /// Before the first step.
    void prepare(int64_t first, const Evaluation& evaluation);
    /// Before each step, with its program.
    void guard(const StepPrograms::Step& step);
    /// What this rank says of its save in the step that begins.
    Status status() const { return state_.status(); }
    /// After a step, with what all ranks have said in it. Throws Error where a save failed: on every rank after the
    /// same step.
    void look(int64_t step, Status all);
    /// The loss on held-out data behind a step, which its checkpoint keeps for retention.
    void evaluated(int64_t step, double loss) { evaluated_ = {step, loss}; }
    /// Of a step, with what lies between it and the next but its save.
    void step_took(double seconds) { time_left_.step_took(seconds); }
    /// Whether a rank that was asked to stop has time for a step and a save.
    bool time_left() const;
    /// Saves the step if one is due. `step_s`: of a step, on average.
    void save_if_due(int64_t step, Status all, double loss, double step_s);
    /// Returns when the step is committed and read back.
    void save(int64_t step, double loss);
    /// Waits for the save that is under way, if there is one; throws what it failed with.
    void finish();
    /// The same for who ends because of another error: what it failed with, to be added to that; "": it did not.
    std::string finish_too();
    /// As `all` ranks have said: with a checkpoint of the step, or without.
    [[noreturn]] void end(int64_t step, Status all, const StopVote& vote, double loss);
    /// What is to be said of it at the end, whatever that is; once.
    void close();
    /// This rank ends with an error: its save is not left to wait for ranks that do not come any more. Closes and
    /// records, too.
    void let_go(const std::exception& error);

    /// Seconds that steps have been held since it was asked last.
    double take_held_s() { return std::exchange(held_since_s_, 0); }
    /// What the run's record keeps of it.
    void record() const;

private:
    /// Since the save under way began; -1: none is.
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

    static constexpr int64_t told_skips = 3;  ///< then only their number, when it has doubled and at the end

    const TrainingRun& run_;
    Session& session_;
    Dataset& data_;
    SavedState state_;
    SaveSchedule schedule_;
    TimeLeft time_left_;
    bool beside_ = false;                          ///< saves run beside the steps
    const Executor* guarded_ = nullptr;            ///< it waits for copies
    int64_t newest_ = 0, committed_ = 0;           ///< of newest(); of those, known to be committed
    std::chrono::steady_clock::time_point begun_;  ///< the save beside the steps that was last
    std::pair<int64_t, double> evaluated_{-1, 0};  ///< step and loss of the last evaluation
    int64_t begun_at_ = 0;                         ///< by the wall clock, seconds since 1970
    int64_t interval_ = 0;                         ///< of "auto": as the last save had it
    int64_t told_interval_ = 0;
    int64_t saved_ = 0, skipped_ = 0;
    int64_t begins_ = 0;  ///< asynchronous ones
    int64_t told_skipped_ = told_skips;
    int64_t waited_ = 0;  ///< those that waited for the one before
    double waited_s_ = 0;
    bool closed_ = false;
    double held_s_ = 0, held_since_s_ = 0;  ///< that steps stood still: in all; since take_held_s
    double beside_s_ = 0;                   ///< that saves ran beside steps
};

}  // namespace orrery
