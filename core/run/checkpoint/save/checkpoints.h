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
    RetentionPolicy keep = {};                  ///< which stay
    int64_t object_bytes = int64_t{256} << 20;  ///< a rank's shards are spread over objects of about this size
    int64_t piece_bytes = int64_t{1} << 20;     ///< one CRC-32C per piece of an object
    bool retire = true;                         ///< remove older ones, but none that is marked
    int64_t share_bytes = 4096;                 ///< what is replicated is split in parts no smaller than this
    AxisId stage_axis = none;                   ///< of the mesh: the axis of a pipeline's stages
    /// What has diverged of a rank's state, which is then not saved: "3 of 4 elements of w"; "": nothing. Empty: nobody
    /// looks. The same on all ranks.
    std::function<std::string(std::span<const StateValue>)> diverged = {};
};

/// Saves and restores the state of all ranks, from and to any layout, on any store. Every call is collective, blocks,
/// and ends the same way on every rank: with success, or with an Error that names the rank at fault. May be called on
/// another thread than the trainer's, where the gathers may; one call at a time.
class Checkpoints {
public:
    /// `to_first` gathers to rank 0 alone, `from_first` tells all what rank 0 says: a save is two of these and three of
    /// those, whatever the number of ranks. Without them `gather` does both.
    Checkpoints(CheckpointStore& store, const Mesh& mesh, int64_t rank, Gather gather, CheckpointOptions options = {},
                Gather to_first = {}, Broadcast from_first = {});
    Checkpoints(const Checkpoints&) = delete;

    /// Each element is written once: what is replicated is split over those who hold it (format/shares). Replicas
    /// vote on their contents; then the manifest is committed, everything is read back and found to cover what is held,
    /// and older checkpoints are retired. Objects that are as this job's last save left them are linked. On failure
    /// earlier ones are untouched, and the step is not visible unless verdict() says so; what cannot be retired is left
    /// with a note and is not a failure. Does nothing for the step that it saved last. `host`: a JSON object (seed,
    /// data cursor, program fingerprint...).
    ///
    /// What stands in the step's place, damaged, suspect or not ours, is set aside and kept; a sound one is an error.
    ///
    /// In which order that is, and what it comes to, is for `Commit` (control/commit.h) to say.
    void save(int64_t step, std::span<const StateValue> state, std::string_view host);
    /// What became of the last save; of one that threw, too.
    const CommitVerdict& verdict() const { return verdict_; }

    /// Fills `state` from the newest checkpoint that can be read without damage and is not marked as suspect; nullopt
    /// when there is none at all. Each rank reads only what it holds. Throws Fault::failed when there are some and none
    /// can be used, or when a rank cannot read for another reason than damage, and Fault::usage when names, dtypes or
    /// shapes are not those of `state` (with `some`, tensors of the checkpoint may be left out). `from` (-1: none):
    /// that step, or Fault::usage with what there is; newer ones are then in nobody's way.
    std::optional<Restored> restore(std::span<const StateValue> state, bool some = false, int64_t from = -1);

    /// What the last call found among the steps that is no checkpoint, and what it moved; the same on every rank for
    /// restore, on rank 0 for save. Emptied by asking.
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
    int64_t saved_ = -1;                    ///< the step saved last
    std::unique_ptr<WrittenStep> written_;  ///< what this rank wrote for it
    CommitVerdict verdict_;
    std::set<int64_t> unremoved_;  ///< steps that could not be removed, each noted once
};

/// "" when every object of a committed step is as its manifest says, otherwise what is wrong and where; also when it
/// cannot be read.
std::string read_back(CheckpointStore& store, int64_t step);

}  // namespace orrery
