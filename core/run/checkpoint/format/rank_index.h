#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "base/json_fwd.h"
#include "run/checkpoint/format/manifest.h"

namespace orrery {

/// What one rank has written: its objects and what lies in them. An object of the step, which the root names.
struct RankIndex {
    struct Shard {
        size_t tensor = 0;  ///< in `tensors`
        int64_t object = 0, begin = 0;
        Block box;
    };
    int64_t step = 0, rank = 0, piece_bytes = 0;
    std::vector<ManifestObject> objects;
    std::vector<std::string> tensors;
    std::vector<Shard> shards;

    /// JSON: 90 bytes a shard, 11 a checksum.
    std::string text() const;
    /// Throws Error when it is not of this form, or an object in it is not this rank's.
    static RankIndex parse(std::string_view text);
    static std::string key(int64_t rank);
};

/// A list of numbers that are not negative, at most 32 of them.
Shape shape_of(const Json& json, const std::string& what);

/// Reads and parses one; throws Damaged when it is missing, not that which the root names, or does not parse.
RankIndex index_of(CheckpointStore& store, const Manifest& manifest, const IndexEntry& entry);

/// Adds its objects and shards. Throws Error when it names a tensor that is not in the manifest (`some`: passes over
/// that), or a shard that lies outside of its tensor or its object.
void add_index(Manifest& manifest, const RankIndex& index, bool some = false);

/// What each rank has of a whole manifest, by rank; those that have nothing are left out.
std::vector<RankIndex> indexes_of(const Manifest& manifest);

/// Puts an index of the step; what the root says of it.
IndexEntry put_index(CheckpointStore& store, const RankIndex& index);

/// Throws Error unless the shard lies inside of its tensor, and of its object. Products of sizes are checked.
void check_shard(const Manifest& manifest, const ManifestTensor& tensor, const ManifestShard& shard);

}  // namespace orrery
