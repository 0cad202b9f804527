#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "base/json_fwd.h"
#include "run/checkpoint/format/manifest.h"

namespace orrery {

/// The index of one rank: the data objects that it wrote for a step, and the tensor shards in them. Stored as JSON.
struct RankIndex {
    struct Shard {
        size_t tensor = 0;  ///< index of the shard's tensor in RankIndex::tensors
        int64_t object = 0, begin = 0;
        Block box;
    };
    int64_t step = 0, rank = 0, piece_bytes = 0;
    std::vector<ManifestObject> objects;
    std::vector<std::string> tensors;
    std::vector<Shard> shards;

    /// The index as JSON: about 90 bytes per shard and 11 per checksum.
    std::string text() const;
    /// Parses an index. Throws Error if it is not one, or lists an object of another rank or of a later step.
    static RankIndex parse(std::string_view text);
    static std::string key(int64_t rank);  ///< key in the store: "rank-00000.index.json"
};

/// Parses a list of at most 32 integers, none negative. `what` names the list in errors.
Shape shape_of(const Json& json, const std::string& what);

/// Reads and parses the index that `entry` names. Throws Damaged if it is missing, its digest differs, or it does not
/// parse.
RankIndex index_of(CheckpointStore& store, const Manifest& manifest, const IndexEntry& entry);

/// Adds the objects and shards of a rank's index to a manifest. Throws Error if a shard exceeds its tensor or its
/// object, or if the manifest lacks its tensor; with `some`, such a shard is ignored instead.
void add_index(Manifest& manifest, const RankIndex& index, bool some = false);

/// Splits a whole manifest into one index per rank, ascending. Ranks without objects are left out.
std::vector<RankIndex> indexes_of(const Manifest& manifest);

/// Writes an index to the store. Returns its entry for the root.
IndexEntry put_index(CheckpointStore& store, const RankIndex& index);

/// Throws Error unless the shard is inside of its tensor and its object. Detects sizes that overflow.
void check_shard(const Manifest& manifest, const ManifestTensor& tensor, const ManifestShard& shard);

}  // namespace orrery
