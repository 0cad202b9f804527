#pragma once
#include <list>
#include <memory>
#include <set>
#include <span>

#include "run/checkpoint/format/manifest.h"

namespace orrery {

/// Reads blocks of a checkpoint's tensors out of the shards that any mesh has left. Keeps some of the objects that it
/// read from last open, with a piece of each: some ten MiB, whatever the checkpoint's size.
class BlockReader {
public:
    BlockReader(CheckpointStore& store, const Manifest& manifest) : store_(store), manifest_(manifest) {}

    /// The block, row-major, in the tensor's own type. Throws Damaged naming object, tensor and byte, and what the
    /// store throws.
    void read(const ManifestTensor& tensor, const Block& block, std::span<std::byte> out);

private:
    struct Open {
        int64_t object = 0;
        std::unique_ptr<ObjectReader> reader;
    };
    ObjectReader& object(int64_t number, const std::string& tensor);

    CheckpointStore& store_;
    const Manifest& manifest_;
    std::list<Open> open_;       ///< the one read last comes first
    std::set<int64_t> checked_;  ///< objects whose headers were compared
};

}  // namespace orrery
