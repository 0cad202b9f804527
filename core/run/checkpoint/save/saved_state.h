#pragma once
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/json_fwd.h"
#include "compile/capacity.h"
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

/// For each value of the plan's program, the pipeline stages that hold it (on the stage axis); empty: all stages.
std::vector<std::vector<int64_t>> stages_of(const Plan& plan);
/// Whether no step of the program changes the value.
bool is_fixed(const Program& program, ValueId value);

/// The settings that determine which samples are drawn in which order, as manifests store them. A resumed run must have
/// the same settings.
Json identity_of(uint64_t seed, const BatchRamp& ramp, const Dataset& data);
/// A message with the first key of `now` that has another value in `saved`, and both values; "" if there is none.
std::string difference_of(const Json& saved, const Json& now);

/// A message if the run already resumed from step `from` (--from-step) earlier and has saved steps since; "" otherwise.
/// It then resumes from its newest step, because a job that is queued again has the same command line. `same`: this
/// start has the settings of the last one. If no marked step exists any more, only such a start counts as the same job.
std::string went_on_before(CheckpointStore& store, int64_t from, bool same);

/// Saves and restores the params, optimizer states and data cursor of a session. Calls are collective and block unless
/// they say otherwise.
class SavedState {
public:
    /// `published`: JSON for exports that rank 0 stores in each manifest; "": none. `suspect_factor`: as in LossJudge.
    /// `drop`: as in CheckpointOptions.
    SavedState(Session& session, CheckpointStore& store, RetentionPolicy keep, std::string published = {},
               double suspect_factor = LossJudge::usual_factor, std::vector<std::string> drop = {});
    ~SavedState();

    struct Resumed {
        int64_t step = 0;                     ///< step that was loaded; 0: fresh weights were drawn
        std::vector<std::string> said;        ///< messages: skipped steps and why, foreign entries of the store
        std::optional<BitSources> bits = {};  ///< what affects last bits in the run that saved it; nullopt: unknown
        std::optional<CapacityChoice::Saved> capacity = {};  ///< nullopt: the run that saved it had no capacities
        int64_t round_after = 0;                             ///< step after which the round (Compiled::round) begins
    };
    /// Loads the newest checkpoint that is neither damaged nor suspect. Draws fresh weights if there are no
    /// checkpoints. Throws Error naming the difference if the checkpoint is of another model, seed or data file. `from`
    /// (--from-step; -1: none): loads this step and marks newer ones as suspect, so that no later start resumes from
    /// them. Ignored if rank 0 gives a message `before` of went_on_before().
    Resumed resume(uint64_t seed, const Dataset& data, int64_t from = -1, std::string before = {});
    /// Loads only the params that the session's program reads, for sampling. Throws Error if there is no checkpoint, or
    /// if it has params that the train step `train` lacks.
    Resumed load_params(const Program& train);
    /// Sets the choice of capacities after the current step, which later saves store.
    void set_capacity(const CapacityChoice::Saved& capacity) { capacity_ = capacity; }
    /// Saves a checkpoint of the step, reads it back and retires older ones. `samples`: number drawn so far; `loss`:
    /// the step's loss; `eval_loss`: loss of this state on held-out data, for retention. Throws Error without saving if
    /// the state has diverged. Returns messages.
    std::vector<std::string> save(int64_t step, uint64_t seed, const Dataset& data, int64_t samples, double loss,
                                  std::optional<double> eval_loss = {});

    /// Enables begin(): starts the save thread and allocates the snapshot.
    void save_beside();
    /// Must be called once for each executor that runs while a save may be under way (Snapshot::guard).
    void guard(Executor& executor, const std::vector<SnapshotPlan>& plans);
    /// The inputs from which the number of steps until the next save is computed.
    struct Pace {
        double between_failures_s = 0;  ///< mean time between failures of the job; 0: no interval is computed
        double step_s = 0;              ///< mean time of a step; 0: not known
    };
    /// Starts an asynchronous save; arguments as in save(). Blocks only for the copy, and only on devices without
    /// gates. No save may be under way on any rank. finished() and finish() throw a failure of the save.
    void begin(int64_t step, uint64_t seed, const Dataset& data, int64_t samples, double loss,
               std::optional<double> eval_loss, const Pace& pace);
    /// Must be called after each step: a save that paused for the step continues.
    void step_ended();
    /// Seconds that the save begun last has paused for a step.
    double paused_s() const;
    /// State of the save begun last, for the status word: saving, save_failed, or go_on once it has ended.
    Status status() const;
    struct Saved {
        int64_t step = 0;
        double held_s = 0;                ///< seconds by which the save delayed steps
        double whole_s = 0;               ///< seconds from the save's begin until it was read back
        int64_t interval = 0;             ///< steps until the next save, the same on every rank; 0: not computed
        std::vector<std::string> said{};  ///< messages: steps that were moved or marked
    };
    /// The result of the save begun last, returned once; nullopt: it is under way, or there is none. Throws its
    /// failure, naming rank and step. Does not block.
    std::optional<Saved> finished();
    /// Blocks until the save begun last has ended. Returns its result once, or throws its failure, like finished().
    std::optional<Saved> finish();
    /// Blocks until no save is under way on this rank.
    void wait() const;
    /// Steps until the next save by the cost of this save and recent ones, computed on rank 0, the same on every rank.
    int64_t interval(const SaveCost& cost, double between_failures_s);
    /// Why the save begun last failed on this rank; "": it is under way or did not fail.
    std::string failure() const;
    /// A message that says how the snapshot is made and how many bytes it has; "": there is no snapshot.
    std::string told_of_copy() const;

    /// Must be called with every step's loss. Marks the previous step as suspect if it was saved and `LossJudge` says
    /// so. Returns a message; "": nothing was marked. Waits for all ranks if the loss is not finite, so that the mark
    /// is stored before the job ends.
    std::string judge(int64_t step, double loss);
    /// Marks a step as suspect. If the step's save is under way, the save thread marks it after the commit. `wait`:
    /// waits for all ranks. Returns a message.
    std::string mark(int64_t step, const std::string& why, bool wait);

private:
    struct Saver;
    struct Job;
    /// A mark for the step whose save is under way. The training thread passes it to the save thread.
    struct LateMark {
        std::mutex order;
        std::string why;     ///< reason of the mark; "": none; guarded by order
        bool closed = true;  ///< whether the save thread takes no more marks; guarded by order
    };
    std::string leave_behind(int64_t from, const std::vector<int64_t>& newer);
    Resumed told(int64_t step, std::vector<std::string> passed_over);
    std::vector<StateValue> views();
    void fetch(std::vector<StateValue>& state);
    void put_back(const std::vector<StateValue>& state);
    Json host_of(int64_t step, uint64_t seed, const Dataset& data, int64_t samples, double loss,
                 std::optional<double> eval_loss) const;
    std::string mark_late(int64_t step, const std::string& why);

    Session& session_;
    CheckpointStore& store_;
    std::unique_ptr<Saver> saver_;  ///< the objects that a save uses; nullptr while the save thread uses them
    LossJudge judge_;
    int64_t round_after_ = 0;  ///< step after which the round begins
    std::optional<CapacityChoice::Saved> capacity_;
    int64_t from_ = -1;  ///< the last --from-step of this run, or of a run that it resumes; -1: none
    std::vector<std::vector<std::byte>> staging_;  ///< host copies of values if the host cannot read device memory
    int64_t begun_ = -1;                           ///< step of the save whose result was not returned yet; -1: none
    LateMark late_;
    std::optional<Snapshot> snapshot_;         ///< copy of the state for asynchronous saves
    std::unique_ptr<SaveThread<Job>> thread_;  ///< declared last, so that it ends before the members that it uses
};

}  // namespace orrery
