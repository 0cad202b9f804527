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

/// Gives everyone's text to everyone, or to rank 0 alone, in rank order. Called by all ranks in the same order with the
/// same topic, each topic once. Throws Fault::peer naming who did not come.
using Gather = std::function<std::vector<std::string>(const std::string& topic, const std::string& mine)>;
/// Rank 0's text for everyone; likewise.
using Broadcast = std::function<std::string(const std::string& topic, const std::string& mine)>;

/// The rounds of a job's saves and restores, each under a topic of its own. Collective.
class Rounds {
public:
    /// `to_first` gathers to rank 0 alone, `from_first` tells all what rank 0 says; without them `gather` does both.
    Rounds(int64_t rank, int64_t ranks, Gather gather, Gather to_first, Broadcast from_first);

    std::vector<std::string> to_all(std::string_view what, const std::string& mine);
    /// Everyone's text on rank 0; what the others get is not to be used.
    std::vector<std::string> to_first(std::string_view what, const std::string& mine);
    /// Rank 0's text.
    std::string from_first(std::string_view what, const std::string& mine);

private:
    std::string topic_of(std::string_view what);

    int64_t rank_, ranks_;
    Gather gather_, to_first_;
    Broadcast from_first_;
    int64_t rounds_ = 0;
};

// What ranks tell rank 0 around a checkpoint. Its size is that of a few digests, but for the first rank of each stage,
// whose text names every value of the stage.

/// Whether this rank is the first of its stage, whose word on names and types the others of the stage are held to.
bool first_of_stage(const Mesh& mesh, int64_t rank, AxisId stage_axis);

/// [name, dtype, shape, splits, stages, fixed] of each value that a rank holds. Throws when two have one name, or it is
/// not UTF-8.
Json schema_of(std::span<const StateValue> state);

/// {"step", "index": [bytes, sha256], "bytes", "schema": digest, "votes": {holders: digest}, "tensors",
/// "unsound"}.
std::string report_of(const Json& schema, std::span<const StateValue> state, const std::vector<Share>& shares,
                      const std::vector<std::string>& votes, const ObjectWriter& writer, const Mesh& mesh, int64_t rank,
                      AxisId stage_axis);

/// What rank 0 makes of all reports.
struct Assembled {
    Manifest root;         ///< all but `host`
    std::string disputed;  ///< holders whose digests differ, "" for none
    bool unsound = false;  ///< a rank could not read again what it had written for the step before
};
/// Throws Error naming the rank whose report says what is wrong, or contradicts the others: another step, other values
/// than the first rank of its stage, a tensor of which not each element is written.
Assembled assemble(const std::vector<std::string>& reports, int64_t step, const Mesh& mesh, AxisId stage_axis,
                   int64_t piece_bytes);

/// The votes of one value each, from those who hold the same: [[name, digest]...], "" from everybody else.
std::string votes_in(std::span<const StateValue> state, const std::vector<Share>& shares,
                     const std::vector<std::string>& votes, const std::string& holders);
/// "replicas of w differ: ranks 0, 2 against rank 1", with what that means.
std::string dispute_of(const std::vector<std::string>& votes);

/// "" when the checkpoint has these values, of these types; otherwise what differs.
std::string mismatch(const Manifest& root, std::span<const StateValue> state);
/// "" when somebody holds each of the checkpoint's tensors; otherwise which are too many.
std::string beyond(const Manifest& root, const std::vector<std::string>& names);

Json parse_message(const std::string& text);

}  // namespace orrery
