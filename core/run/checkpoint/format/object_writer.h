#pragma once
#include <map>
#include <span>
#include <string>
#include <vector>

#include "run/checkpoint/format/rank_index.h"
#include "run/checkpoint/format/shares.h"

namespace orrery {

/// A digest of all that a rank holds of a value, over the CRC-32C of each MiB: what replicas compare.
std::string vote_of(const StateValue& value);

/// An object of these parts, laid end to end, as an index has it.
ManifestObject described(std::string key, int64_t rank, int64_t step, std::span<const std::span<const std::byte>> parts,
                         int64_t piece_bytes);

/// A manifest of what this rank has written alone.
Manifest manifest_of(std::span<const StateValue> state, const RankIndex& index);

/// What a rank wrote for a committed step: what the next one may link.
struct WrittenStep {
    RankIndex index;
    IndexEntry entry;                          ///< as ObjectWriter's
    std::map<std::string, std::string> votes;  ///< by name
};

/// Writes a rank's shares in objects of bounded size: values that the program does not change in objects of their own,
/// so that the next save finds them unchanged. An object whose shards and bytes are those of the step before is linked
/// where the store shares bytes, once the earlier one was read and found sound; the SHA-256 of any other is made while
/// it is written, once.
class ObjectWriter {
public:
    /// `before`: nullptr: nothing is linked. `object_bytes`, `piece_bytes`: as CheckpointOptions has them.
    ObjectWriter(CheckpointStore& store, int64_t step, int64_t rank, int64_t object_bytes, int64_t piece_bytes,
                 const WrittenStep* before);

    /// Puts all objects, and the index where there are any. `votes`: of each value, as `state`.
    void write(std::span<const StateValue> state, const std::vector<Share>& shares,
               const std::vector<std::string>& votes);

    const RankIndex& index() const { return index_; }
    const IndexEntry& entry() const { return entry_; }  ///< bytes 0: this rank writes nothing
    int64_t bytes() const { return data_bytes_; }       ///< of tensors, linked ones too
    int64_t linked() const { return linked_bytes_; }    ///< of these, in linked objects
    bool unsound() const { return unsound_; }           ///< an object of the step before could not be read again

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
    std::map<std::string, size_t> names_;  ///< of tensors in the index
    std::vector<Part> open_;
    std::map<std::string, int64_t> held_;  ///< shards of each tensor in the open object
    std::map<std::string, bool> stored_;   ///< names in it
    int64_t open_bytes_ = 0, data_bytes_ = 0, linked_bytes_ = 0;
    std::span<const StateValue> state_;
    RankIndex index_;
    IndexEntry entry_;
};

}  // namespace orrery
