#pragma once
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_fwd.h"
#include "run/checkpoint/format/object_writer.h"

namespace orrery {

/// Gathers one text per rank, in rank order, to all ranks or to rank 0 alone. Collective: all ranks call it in the same
/// order with the same topic, each topic once. Blocks. Throws Fault::peer naming the ranks that did not call it.
using Gather = std::function<std::vector<std::string>(const std::string& topic, const std::string& mine)>;
/// Returns rank 0's text on every rank. Collective: all ranks call it in the same order with the same topic.
using Broadcast = std::function<std::string(const std::string& topic, const std::string& mine)>;

/// The communication rounds of saves and restores. Gives each round a topic of its own. Collective.
class Rounds {
public:
    /// `to_first` gathers to rank 0 alone, `from_first` broadcasts from rank 0; an empty one is replaced by `gather`.
    Rounds(int64_t rank, int64_t ranks, Gather gather, Gather to_first, Broadcast from_first);

    std::vector<std::string> to_all(std::string_view what, const std::string& mine);
    /// Gathers to rank 0. Other ranks must not use the result.
    std::vector<std::string> to_first(std::string_view what, const std::string& mine);
    std::string from_first(std::string_view what, const std::string& mine);

private:
    std::string topic_of(std::string_view what);

    int64_t rank_, ranks_;
    Gather gather_, to_first_;
    Broadcast from_first_;
    int64_t rounds_ = 0;
};

// Messages to rank 0 during a save. Each is a few digests long; only the first rank of each pipeline stage also lists
// every value of the stage.

/// Whether this rank is the first of its pipeline stage, the one that lists the stage's values in its report.
bool first_of_stage(const Mesh& mesh, int64_t rank, AxisId stage_axis);

/// JSON list with [name, dtype, shape, splits, stages, fixed] of each value that a rank holds. Throws if two values
/// have the same name or a name is not UTF-8.
Json schema_of(std::span<const StateValue> state);

/// A rank's report to rank 0 after it wrote its objects, as JSON: {"step", "index": [bytes, sha256], "bytes", "schema":
/// digest, "votes": {holders: digest}, "tensors", "unsound"}. `votes`: digest (vote_of) of each value of `state`.
std::string report_of(const Json& schema, std::span<const StateValue> state, const std::vector<Share>& shares,
                      const std::vector<std::string>& votes, const ObjectWriter& writer, const Mesh& mesh, int64_t rank,
                      AxisId stage_axis);

struct Assembled {
    Manifest root;         ///< the root of the new checkpoint, without `host`
    std::string disputed;  ///< names the group of ranks (Share::holders) with replicas that differ; "": none
    bool unsound = false;  ///< whether a rank could not read an object of the previous step
};
/// Combines the save reports of all ranks, in rank order. Throws Error naming a rank if its report is for another step
/// or lists other values than the first rank of its stage, and if the bytes written are not those of the tensors.
Assembled assemble(const std::vector<std::string>& reports, int64_t step, const Mesh& mesh, AxisId stage_axis,
                   int64_t piece_bytes);

/// This rank's digests of values that the ranks `holders` replicate, as JSON [[name, digest]...]; "" if it holds none.
std::string votes_in(std::span<const StateValue> state, const std::vector<Share>& shares,
                     const std::vector<std::string>& votes, const std::string& holders);
/// A message about the first value with digests that differ between ranks: "replicas of w differ: ranks 0, 2 against
/// rank 1", with possible causes. `votes`: votes_in() of each rank.
std::string dispute_of(const std::vector<std::string>& votes);

/// Whether the checkpoint has all states of a loss scale.
bool has_loss_scale(const Manifest& root);
/// The number of rows of a checkpoint's tensor, if it differs from the value's in that alone; else 0.
int64_t other_rows(const ManifestTensor& tensor, const StateValue& value);
/// Whether a value takes over a checkpoint's tensor: all but hints of another shape, which keep their initial values.
bool takes_over(const ManifestTensor& tensor, const StateValue& value);
/// A message about the first value that the checkpoint lacks (unless absent_ok) or has with another dtype or shape; ""
/// if there is none.
std::string mismatch(const Manifest& root, std::span<const StateValue> state);
/// A message about the checkpoint's tensors that are not in `names`; "" if there are none. The states of a loss scale
/// may be missing in `names`: a run without a loss scale drops them. So may those that match `drop`, where * matches
/// any characters; `dropped` is set to a note about these.
std::string beyond(const Manifest& root, const std::vector<std::string>& names, const std::vector<std::string>& drop,
                   std::string& dropped);

Json parse_message(const std::string& text);

}  // namespace orrery
