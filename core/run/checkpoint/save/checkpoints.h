#pragma once
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "control/commit.h"
#include "orrery/checkpoint.h"
#include "run/checkpoint/restore/restore.h"
#include "run/checkpoint/retain/retire.h"

namespace orrery {

struct CheckpointOptions {
    RetentionPolicy keep = {};
    int64_t object_bytes = int64_t{256} << 20;  ///< bytes after which a rank starts another object
    int64_t piece_bytes = int64_t{1} << 20;     ///< bytes of an object that each CRC-32C covers
    bool retire = true;                         ///< whether a save removes older steps that no rule keeps
    int64_t share_bytes = 4096;                 ///< min bytes of the parts into which replicated values are split
    AxisId stage_axis = none;                   ///< mesh axis of pipeline stages; none: no pipeline
    /// Returns what has diverged in a rank's state: "3 of 4 elements of w"; "": nothing. A diverged state is not saved.
    /// Empty: states are not checked. Either all ranks set it or none.
    std::function<std::string(std::span<const StateValue>)> diverged = {};
    /// Names of a checkpoint's tensors that a restore drops if `state` does not have them; * matches any characters.
    std::vector<std::string> drop = {};
};

/// Saves and restores the state of all ranks, from and to any layout, on any store. Every call is collective, blocks,
/// and ends the same way on all ranks: with success, or with an Error that names the rank at fault. Not thread-safe;
/// may run on any thread on which the Gather functions may run.
class Checkpoints {
public:
    /// `to_first` gathers to rank 0 alone, `from_first` broadcasts from rank 0; an empty one is replaced by `gather`. A
    /// save takes two gathers to rank 0 and three broadcasts, and one gather to all ranks if states are checked.
    Checkpoints(CheckpointStore& store, const Mesh& mesh, int64_t rank, Gather gather, CheckpointOptions options = {},
                Gather to_first = {}, Broadcast from_first = {});
    Checkpoints(const Checkpoints&) = delete;

    /// Saves a step. Every element is written once: ranks that hold the same block split it (format/shares.h). Replicas
    /// compare digests, rank 0 commits the manifest, every rank reads its part back, and rank 0 retires older steps.
    /// Objects that have not changed since this job's last save are linked. `Commit` (control/commit.h) has the order.
    /// `host`: a JSON object of the training (seed, data cursor, losses...), stored in the manifest.
    ///
    /// On failure earlier steps are untouched, and the step is not visible unless verdict() says so. An older step that
    /// cannot be removed is only reported in notes(). Damaged, suspect or foreign contents in the step's place are set
    /// aside; a valid checkpoint there is an error. Does nothing if the step is the one saved last.
    void save(int64_t step, std::span<const StateValue> state, std::string_view host);
    /// The result of the last save, whether it returned or threw.
    const CommitVerdict& verdict() const { return verdict_; }

    /// Fills `state` from the newest checkpoint that is neither damaged nor marked as suspect. Returns nullopt if the
    /// store has no checkpoints. Each rank reads only its own blocks. `some`: the checkpoint may have tensors that
    /// `state` lacks. `from`: only this step will do; -1: any. Throws Fault::failed if no checkpoint is usable, or if a
    /// rank cannot read for a reason other than damage; Fault::usage if step `from` does not exist, or if names, dtypes
    /// or shapes differ from `state`.
    std::optional<Restored> restore(std::span<const StateValue> state, bool some = false, int64_t from = -1);

    /// Messages of the last save or restore: store entries that are not checkpoints, and steps that were moved. After
    /// restore they are the same on every rank, after save only rank 0 has them. Clears the list.
    std::vector<std::string> notes() { return std::exchange(notes_, {}); }

private:
    struct OwnPart;
    void perform(Commit& commit, OwnPart& part);
    void make_way(int64_t step);
    std::string write(OwnPart& part);
    std::string judge(OwnPart& part, const std::vector<std::string>& reports);
    void read_back(const OwnPart& part, CommitAnswer& answer);
    void check_cover(std::span<const StateValue> state, const std::vector<Share>& shares, const Manifest& own);
    std::string told() const;
    void retire();

    CheckpointStore& store_;
    Mesh mesh_;
    int64_t rank_;
    CheckpointOptions options_;
    Rounds rounds_;
    std::vector<std::string> notes_;
    Restore restore_;
    Retirement retirement_;
    int64_t saved_ = -1;                    ///< step saved last; -1: none
    std::unique_ptr<WrittenStep> written_;  ///< what this rank wrote for step saved_
    CommitVerdict verdict_;
    std::set<int64_t> unremoved_;  ///< steps that could not be removed and were noted
};

/// Reads a committed step completely. Returns the first damage or read error, as a message that names the step; "" if
/// there is none.
std::string read_back(CheckpointStore& store, int64_t step);

}  // namespace orrery
