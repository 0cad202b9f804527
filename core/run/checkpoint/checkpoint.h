#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/json_fwd.h"
#include "control/commit.h"
#include "orrery/checkpoint.h"
#include "orrery/layout.h"
#include "orrery/mark.h"
#include "run/retention/retire.h"

namespace orrery {

/// One parameter, gradient or optimizer state as this rank holds it. `local` is host-readable and has
/// layout.local_shape(global). Names are unique; ranks of one stage hold the same names, other stages may hold others.
struct StateValue {
    std::string name;
    TensorType global;
    Layout layout;
    Tensor local;
    /// Where ranks that hold it lie on the axis of stages (CheckpointOptions::stage_axis); empty: everywhere.
    std::vector<int64_t> stages = {};
    bool fixed = false;  ///< the program does not change it
};

/// Gives everyone's text to everyone, or to rank 0 alone, in rank order. Called by all ranks in the same order with the
/// same topic, each topic once per Checkpoints object. Throws Fault::peer naming who did not come.
using Gather = std::function<std::vector<std::string>(const std::string& topic, const std::string& mine)>;
/// Rank 0's text for everyone; likewise.
using Broadcast = std::function<std::string(const std::string& topic, const std::string& mine)>;

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

struct Restored {
    int64_t step = 0;
    std::string host;                      ///< the JSON object given to save
    std::vector<std::string> passed_over;  ///< newer ones, with why: damaged (file, tensor, offset) or suspect
    std::vector<int64_t> newer = {};       ///< of a step that was asked for: those behind it that are not marked
};

struct Manifest;
struct WrittenStep;
struct Share;

/// Saves and restores the state of all ranks, from and to any layout, on any store. Every call is collective, blocks,
/// and ends the same way on every rank: with success, or with an Error that names the rank at fault. May be called on
/// another thread than the trainer's, where the gathers may; one call at a time.
class Checkpoints {
public:
    /// `to_first` gathers to rank 0 alone, `from_first` tells all what rank 0 says: a save is two of these and three of
    /// those, whatever the number of ranks. Without them `gather` does both.
    Checkpoints(CheckpointStore& store, const Mesh& mesh, int64_t rank, Gather gather, CheckpointOptions options = {},
                Gather to_first = {}, Broadcast from_first = {});
    ~Checkpoints();

    /// Each element is written once: what is replicated is split over those who hold it (format/shares.h). Replicas
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
    std::string topic_of(std::string_view what);
    std::vector<std::string> collect(std::string_view what, const std::string& mine);
    std::string hear(std::string_view what, const std::string& mine);
    struct OwnPart;
    void perform(Commit& commit, OwnPart& part);
    void make_way(int64_t step);
    std::string write(OwnPart& part);
    std::string judge(OwnPart& part, const std::vector<std::string>& reports);
    void read_back(const OwnPart& part, CommitAnswer& answer);
    void check_cover(std::span<const StateValue> state, const std::vector<Share>& shares, const Manifest& own);
    std::string told() const;
    void retire();
    std::string look();
    Restored restore_step(int64_t from, std::span<const StateValue> state, const Json& found, bool some);
    std::string fill(int64_t step, std::span<const StateValue> state, bool some, std::string& host);
    std::string fill_from(int64_t step, std::span<const StateValue> state, bool some, std::string& host);
    std::string judge_fills(int64_t step, const std::vector<std::string>& fills, bool some);

    CheckpointStore& store_;
    Mesh mesh_;
    int64_t rank_;
    Gather gather_, to_first_;
    Broadcast from_first_;
    CheckpointOptions options_;
    int64_t exchanges_ = 0;
    int64_t saved_ = -1;                    ///< the step saved last
    std::unique_ptr<WrittenStep> written_;  ///< what this rank wrote for it
    CommitVerdict verdict_;
    Retirement retirement_;
    std::set<int64_t> passed_over_;  ///< steps that are not what this job went on from
    std::set<int64_t> unremoved_;    ///< steps that could not be removed, each noted once
    std::vector<std::string> notes_;
};

/// "" when every object of a committed step is as its manifest says, otherwise what is wrong and where; also when it
/// cannot be read.
std::string read_back(CheckpointStore& store, int64_t step);

}  // namespace orrery
