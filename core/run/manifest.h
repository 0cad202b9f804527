#pragma once
#include <string>
#include <vector>

#include "orrery/checkpoint.h"
#include "run/box.h"

namespace orrery {

/// One object of a checkpoint: a safetensors file of shards.
struct ManifestObject {
    std::string key;
    int64_t rank = 0;  ///< who wrote it
    int64_t bytes = 0;
    std::string sha256;
    std::vector<uint32_t> crcs;  ///< CRC-32C of each piece
};

struct ManifestShard {
    int64_t object = 0;  ///< index into Manifest::objects
    int64_t begin = 0;   ///< first byte in the object
    Box box;             ///< which part of the tensor
};

struct ManifestTensor {
    std::string name;
    TensorType type;     ///< global
    std::string layout;  ///< at the time of saving, for people
    std::vector<ManifestShard> shards;
};

/// What a checkpoint says of itself, as JSON. The last key, `digest`, is the SHA-256 of all before it.
struct Manifest {
    static constexpr int64_t version = 1;

    int64_t step = 0;
    std::string mesh;  ///< "dp=2 tp=2", for people
    std::string host;  ///< JSON object
    int64_t piece_bytes = 0;
    std::vector<ManifestObject> objects;
    std::vector<ManifestTensor> tensors;

    std::string text() const;
    /// Throws Fault::failed, beginning with `place`, when the text is damaged or of a newer version.
    static Manifest parse(std::string_view text, const std::string& place);
    const ManifestTensor* find(std::string_view name) const;
};

/// Reads a range of an object, piece by piece, each checked against its CRC-32C.
class ObjectReader {
public:
    ObjectReader(CheckpointStore& store, const Manifest& manifest, int64_t object);

    /// Throws Fault::failed naming the object, the tensor, the byte and what is wrong: missing, cut short, swapped with
    /// another object, or damaged.
    void read(int64_t offset, std::span<std::byte> out, std::string_view tensor);
    /// "" when all pieces and the SHA-256 agree.
    std::string verify();

private:
    void load(int64_t piece, std::string_view tensor);
    std::string name() const;
    std::string tensors_in(int64_t begin, int64_t end) const;

    CheckpointStore& store_;
    const Manifest& manifest_;
    const ManifestObject& object_;
    std::vector<std::byte> buffer_;
    int64_t loaded_ = -1;  ///< the piece in the buffer
    bool sized_ = false;
};

}  // namespace orrery
