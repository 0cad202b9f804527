#pragma once
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/json_fwd.h"
#include "compile/passes/status_word.h"
#include "compile/ramp.h"
#include "run/checkpoint/save/checkpoints.h"
#include "run/checkpoint/save/nonfinite.h"
#include "run/checkpoint/save/save_interval.h"
#include "run/checkpoint/save/save_thread.h"
#include "run/checkpoint/save/snapshot.h"
#include "run/data/data.h"
#include "run/session.h"

namespace orrery {

/// By value: coordinates on the plan's axis of stages where ranks hold it; empty: all, or there are no stages.
std::vector<std::vector<int64_t>> stages_of(const Plan& plan);
/// Whether no step of the program changes it.
bool is_fixed(const Program& program, ValueId value);

/// What a checkpoint must agree with to be resumed: which samples are drawn, in which order. As it is kept.
Json identity_of(uint64_t seed, const BatchRamp& ramp, const Dataset& data);
/// The first key of `now` that is not as in `saved`, with both values; "" when there is none.
std::string difference_of(const Json& saved, const Json& now);

/// What to say where a run has gone on from step `from` before and has saved since: it goes on from the newest one, as
/// a job that is queued again has the same command. "": it has not.
std::string went_on_before(CheckpointStore& store, int64_t from);

/// The params, optimizer states and data cursor of a session, as checkpoints keep them. Collective.
class SavedState {
public:
    /// `published`: JSON that each manifest keeps for exports, of rank 0; "": it says nothing. `suspect_factor`: of
    /// LossJudge.
    SavedState(Session& session, CheckpointStore& store, RetentionPolicy keep, std::string published = {},
               double suspect_factor = LossJudge::usual_factor);
    ~SavedState();

    struct Resumed {
        int64_t step = 0;                     ///< 0: fresh weights were drawn
        std::vector<std::string> said;        ///< what was passed over, and why; what else lies there
        std::optional<BitSources> bits = {};  ///< what its last bits depended on; nullopt: it does not say
    };
    /// Loads the newest checkpoint that is neither damaged nor suspect, or draws fresh weights. Throws Error when the
    /// checkpoint belongs to another model, seed or data file, naming what differs.
    /// `from` (-1: none): that step alone will do; newer ones are marked as suspect, so that no later start goes on
    /// from what this run leaves behind, and none of them is in the way of its own. Not where it went on from there
    /// before.
    Resumed resume(uint64_t seed, const Dataset& data, int64_t from = -1);
    /// The same for params only, for sampling. Throws Error when there is no checkpoint.
    Resumed load_params();
    /// Commits a checkpoint of the step, whose loss was `loss`, and reads it back; then retires older ones. `samples`:
    /// drawn so far; `eval_loss`: that of this very state on held-out data, for retention. Throws Error when the state
    /// has diverged: nothing is saved then. Returns what it moved.
    std::vector<std::string> save(int64_t step, uint64_t seed, const Dataset& data, int64_t samples, double loss,
                                  std::optional<double> eval_loss = {});

    /// From here on saves may be begun beside the steps: makes their thread and their copy's memory.
    void save_beside();
    /// Of executors that run while a save may be under way, each once (Snapshot::guard).
    void guard(Executor& executor, const std::vector<SnapshotPlan>& plans);
    /// How often nodes of the whole job fail, and what a step takes: where the steps to the next save follow from them.
    struct Pace {
        double between_failures_s = 0;  ///< 0: they do not
        double step_s = 0;
    };
    /// As save(), but returns at once where the device copies while its next step runs, and it does but for devices
    /// without gates. None may be under way on any rank. What goes wrong is told by finish().
    void begin(int64_t step, uint64_t seed, const Dataset& data, int64_t samples, double loss,
               std::optional<double> eval_loss, const Pace& pace);
    /// Behind each step, and where none follows: a save that let the step at hand go first does so no more.
    void step_ended();
    /// Seconds that the save begun last has done so.
    double paused_s() const;
    /// For the status word: go_on, saving, or save_failed. One that is over is `saving` no more.
    Status status() const;
    struct Saved {
        int64_t step = 0;
        double held_s = 0;                ///< that steps stood still for it
        double whole_s = 0;               ///< from its begin until it was read back
        int64_t interval = 0;             ///< steps to the next one, the same on every rank; 0: nobody asked
        std::vector<std::string> said{};  ///< what it moved or marked
    };
    /// Of the save begun last, once; nullopt: it is under way, or there is none. Throws what it failed with, naming
    /// rank and step.
    std::optional<Saved> finished();
    /// The same; waits for it.
    std::optional<Saved> finish();
    /// Returns when no save is under way on this rank; what became of it finished() says.
    void wait() const;
    /// The steps from one save to the next by what rank 0 has measured of this one and the last few, the same on every
    /// rank. Collective.
    int64_t interval(const SaveCost& cost, double between_failures_s);
    /// Why the save begun last failed on this rank; "": it did not, or is under way.
    std::string failure() const;
    /// How the copy is made, and its bytes; "": there is none.
    std::string told_of_copy() const;

    /// To be called with each step's loss. A committed step is marked as suspect when `LossJudge` finds the next one's
    /// loss so. Returns what was marked, "" when nothing. Waits for all ranks when the loss is not finite, so that the
    /// mark is there when the job ends.
    std::string judge(int64_t step, double loss);
    /// Marks a committed step; `wait`: for all ranks. One whose save is under way is marked when it is committed.
    /// Returns what to say of it.
    std::string mark(int64_t step, const std::string& why, bool wait);

private:
    struct Saver;
    struct Job;
    /// Why the step is suspect whose save is under way: the one word that goes from the training thread to the save
    /// thread meanwhile.
    struct LateMark {
        std::mutex order;
        std::string why;     ///< guarded by order
        bool closed = true;  ///< no more are taken; guarded by order
    };
    std::string leave_behind(int64_t from, const std::vector<int64_t>& newer);
    Resumed told(int64_t step, std::vector<std::string> passed_over);
    std::vector<StateValue> views();
    void fetch(std::vector<StateValue>& state);
    void put_back(const std::vector<StateValue>& state);
    Json host_of(uint64_t seed, const Dataset& data, int64_t samples, double loss,
                 std::optional<double> eval_loss) const;
    std::string mark_late(int64_t step, const std::string& why);

    Session& session_;
    CheckpointStore& store_;
    std::unique_ptr<Saver> saver_;  ///< nullptr: the save thread has it
    LossJudge judge_;
    int64_t from_ = -1;  ///< the step that a person had this run, or one that it resumes, go on from last; -1: none
    std::vector<std::vector<std::byte>> staging_;  ///< host copies where the device's memory is not the host's
    int64_t begun_ = -1;                           ///< step of the save that is not finished; -1: none
    LateMark late_;
    std::optional<Snapshot> snapshot_;         ///< of saves beside the steps
    std::unique_ptr<SaveThread<Job>> thread_;  ///< last: it ends before what it uses
};

}  // namespace orrery
