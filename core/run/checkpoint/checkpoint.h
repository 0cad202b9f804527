#pragma once
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "orrery/checkpoint.h"
#include "orrery/layout.h"

namespace orrery {

/// One parameter, gradient or optimizer state as this rank holds it. `local` is host-readable and has
/// layout.local_shape(global). Names are unique; ranks of one stage hold the same names, other stages may hold others.
struct StateValue {
    std::string name;
    TensorType global;
    Layout layout;
    Tensor local;
};

/// Gives everyone's text to everyone, or to rank 0 alone, in rank order. Called by all ranks in the same order with the
/// same topic, each topic once per Checkpoints object. Throws Fault::peer naming who did not come.
using Gather = std::function<std::vector<std::string>(const std::string& topic, const std::string& mine)>;

struct CheckpointOptions {
    int64_t keep = 2;                           ///< verified checkpoints that stay, at least 2
    int64_t object_bytes = int64_t{256} << 20;  ///< a rank's shards are spread over objects of about this size
    int64_t piece_bytes = int64_t{1} << 20;     ///< one CRC-32C per piece of an object
    bool retire = true;                         ///< remove older ones, but none that is marked
};

struct Restored {
    int64_t step = 0;
    std::string host;                      ///< the JSON object given to save
    std::vector<std::string> passed_over;  ///< newer ones, with why: damaged (file, tensor, offset) or suspect
};

/// Saves and restores the state of all ranks, from and to any layout, on any store. Every call is collective, blocks,
/// and ends the same way on every rank: with success, or with an Error that names the rank at fault.
class Checkpoints {
public:
    /// `to_first` gathers the reports on what was written, the one big message: only rank 0 needs them. Without it
    /// `gather` does.
    Checkpoints(CheckpointStore& store, const Mesh& mesh, int64_t rank, Gather gather, CheckpointOptions options = {},
                Gather to_first = {});

    /// Each distinct shard is written once, by the lowest rank that holds it. Replicas vote on their contents; then the
    /// manifest is committed, everything is read back, and older checkpoints are retired. On failure the step is not
    /// visible and earlier ones are untouched. Does nothing for the step that it saved last. `host`: a JSON object
    /// (seed, data cursor, program fingerprint...).
    ///
    /// What stands in the step's place, damaged, suspect or not ours, is set aside and kept; a sound one is an error.
    void save(int64_t step, std::span<const StateValue> state, std::string_view host);

    /// Fills `state` from the newest checkpoint that can be read without damage and is not marked as suspect; nullopt
    /// when there is none at all. Each rank reads only what it holds. Throws Fault::failed when there are some and none
    /// can be used, or when a rank cannot read for another reason than damage, and Fault::usage when names, dtypes or
    /// shapes are not those of `state` (with `some`, tensors of the checkpoint may be left out).
    std::optional<Restored> restore(std::span<const StateValue> state, bool some = false);

    /// What the last call found among the steps that is no checkpoint, and what it moved; the same on every rank for
    /// restore, on rank 0 for save. Emptied by asking.
    std::vector<std::string> notes() { return std::exchange(notes_, {}); }

private:
    std::vector<std::string> exchange(const std::string& what, const std::string& mine);
    std::vector<std::string> collect(const std::string& what, const std::string& mine);
    void agree(const std::string& what, const std::string& problem, const std::string& task);
    std::vector<Json> start(int64_t step, std::span<const StateValue> state, const std::string& task);
    std::vector<Json> write(int64_t step, std::span<const StateValue> state, const std::vector<Json>& starts,
                            const std::string& task);
    std::string read_back(int64_t step);
    void make_way(int64_t step);
    void retire();
    std::vector<Json> look(std::span<const StateValue> state);
    std::string fill_from(int64_t step, std::span<const StateValue> state, const std::vector<Json>& starts, bool some,
                          std::string& host);

    CheckpointStore& store_;
    Mesh mesh_;
    int64_t rank_;
    Gather gather_, to_first_;
    CheckpointOptions options_;
    int64_t exchanges_ = 0;
    int64_t saved_ = -1;             ///< the step saved last
    std::vector<int64_t> verified_;  ///< steps that were read whole by this job
    std::set<int64_t> passed_over_;  ///< steps that are not what this job went on from
    std::vector<std::string> notes_;
};

/// "" when every object of a committed step is as its manifest says, otherwise what is wrong and where; also when it
/// cannot be read.
std::string read_back(CheckpointStore& store, int64_t step);

}  // namespace orrery
