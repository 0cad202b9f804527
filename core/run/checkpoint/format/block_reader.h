#pragma once
#include <list>
#include <memory>
#include <set>
#include <span>

#include "run/checkpoint/format/manifest.h"

namespace orrery {

/// Reads blocks of a checkpoint's tensors from shards written on any mesh. Keeps the 32 objects read most recently
/// open, each with one piece (1 MiB) in memory.
class BlockReader {
public:
    BlockReader(CheckpointStore& store, const Manifest& manifest) : store_(store), manifest_(manifest) {}

    /// Copies a block to `out`, row-major, in the tensor's dtype. Throws Damaged naming object, tensor and byte, and
    /// whatever the store throws.
    void read(const ManifestTensor& tensor, const Block& block, std::span<std::byte> out);

private:
    struct Open {
        int64_t object = 0;
        std::unique_ptr<ObjectReader> reader;
    };
    ObjectReader& object(int64_t number, const std::string& tensor);

    CheckpointStore& store_;
    const Manifest& manifest_;
    std::list<Open> open_;       ///< most recently read object first
    std::set<int64_t> checked_;  ///< objects with headers that were checked and match the manifest
};

}  // namespace orrery
