#pragma once
#include <map>
#include <span>
#include <string>
#include <vector>

#include "run/checkpoint/format/rank_index.h"
#include "run/checkpoint/format/shares.h"

namespace orrery {

/// The digest of a rank's local block, which replicas compare: the SHA-256 over the CRC-32C of each MiB.
std::string vote_of(const StateValue& value);

/// Describes an object made of `parts`, concatenated: size, SHA-256, CRC-32C of each piece. Reads all bytes.
ManifestObject described(std::string key, int64_t rank, int64_t step, std::span<const std::span<const std::byte>> parts,
                         int64_t piece_bytes);

Manifest manifest_of(std::span<const StateValue> state, const RankIndex& index);

/// What a rank wrote for the previous committed step. The next save links to its unchanged objects.
struct WrittenStep {
    RankIndex index;
    IndexEntry entry;                          ///< size and digest of the index; bytes 0: the rank wrote nothing
    std::map<std::string, std::string> votes;  ///< digest (vote_of) of each value, by name
};

/// Writes the parts of tensors that a rank saves to objects of bounded size. Values that the program does not change go
/// to objects of their own, so that the next save can link to them. If an object would equal one of the previous step
/// and the store supports links, the earlier one is read, checked and linked. Any other object is hashed and written.
class ObjectWriter {
public:
    /// `before`: what the rank wrote for the previous step; nullptr: link nothing. Sizes: as in CheckpointOptions.
    ObjectWriter(CheckpointStore& store, int64_t step, int64_t rank, int64_t object_bytes, int64_t piece_bytes,
                 const WrittenStep* before);

    /// Writes this rank's objects, then its index if it has objects. `shares` and `votes` follow the order of `state`.
    void write(std::span<const StateValue> state, const std::vector<Share>& shares,
               const std::vector<std::string>& votes);

    const RankIndex& index() const { return index_; }
    const IndexEntry& entry() const { return entry_; }
    int64_t bytes() const { return data_bytes_; }     ///< tensor bytes in all objects, linked ones included
    int64_t linked() const { return linked_bytes_; }  ///< tensor bytes in linked objects
    bool unsound() const { return unsound_; }         ///< whether an object of the previous step could not be read

private:
    struct Part {
        const StateValue* value;
        Block box;
        Tensor tensor;
        std::string name;
    };
    void add(const StateValue& value, const Block& local, const Block& box);
    void close();
    bool same_parts(const ManifestObject& earlier, int64_t start) const;
    bool sound(const ManifestObject& earlier);

    CheckpointStore& store_;
    const int64_t object_bytes_;
    const WrittenStep* before_;
    bool links_, unsound_ = false;
    std::map<std::string, std::string> votes_;
    std::map<std::string, size_t> names_;  ///< tensor name -> index into index_.tensors
    std::vector<Part> open_;               ///< shards of the object that is being filled
    std::map<std::string, int64_t> held_;  ///< by tensor name: number of its shards in open_
    std::map<std::string, bool> stored_;   ///< names of the shards in open_
    int64_t open_bytes_ = 0, data_bytes_ = 0, linked_bytes_ = 0;
    std::span<const StateValue> state_;
    RankIndex index_;
    IndexEntry entry_;
};

}  // namespace orrery
