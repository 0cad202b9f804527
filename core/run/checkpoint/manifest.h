#pragma once
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "layout/shards.h"
#include "orrery/checkpoint.h"

namespace orrery {

/// What a checkpoint itself has wrong with it, as against a store that cannot be read just now. Fault::failed.
class Damaged : public Error {
public:
    explicit Damaged(const std::string& text) : Error(text, Fault::failed) {}
    Damaged(const Origin& where, const std::string& text) : Error(where, text, Fault::failed) {}
};

/// In an object's own metadata: the step that it was written for.
inline constexpr const char* step_key = "step";

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
    Block box;           ///< which part of the tensor
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
    static constexpr int64_t last_step = 1'000'000'000'000;  ///< 30 years at 1 ms; counts of samples stay below 2^63

    int64_t step = 0;
    std::string mesh;  ///< "dp=2 tp=2", for people
    std::string host;  ///< JSON object
    int64_t piece_bytes = 0;
    std::vector<ManifestObject> objects;
    std::vector<ManifestTensor> tensors;

    std::string text() const;
    /// Throws Damaged, beginning with `place`, when the text is damaged, its parts do not fit together, or it is
    /// of a newer version.
    static Manifest parse(std::string_view text, const std::string& place);
    /// The manifest of a committed step. Throws as parse does, also when it is that of another step, and what
    /// the store throws.
    static Manifest of(CheckpointStore& store, int64_t step);

    // Of a manifest that was parsed:
    const ManifestTensor* find(std::string_view name) const;
    /// What lies in an object, as (tensor, shard), by first byte; tensors that hold nothing come first.
    std::vector<std::vector<std::pair<size_t, size_t>>> held;
    std::map<std::string, size_t, std::less<>> places;  ///< of tensors, by name
};

/// Reads a range of an object, piece by piece, each checked against its CRC-32C.
class ObjectReader {
public:
    ObjectReader(CheckpointStore& store, const Manifest& manifest, int64_t object);

    /// Throws Damaged naming the object, the tensor, the byte and what is wrong: missing, cut short, swapped with
    /// another object, or damaged. What the store throws goes through, here and below.
    void read(int64_t offset, std::span<std::byte> out, std::string_view tensor);
    /// Throws Damaged unless the object's own header has the manifest's step, names, types and places.
    void check_header(std::string_view tensor = {});
    /// "" when all pieces, the SHA-256 and the header agree.
    std::string verify();

private:
    void compare_header(const std::vector<std::byte>& start);
    void load(int64_t piece, std::string_view tensor);
    std::string name() const;
    std::string tensors_in(int64_t begin, int64_t end) const;

    CheckpointStore& store_;
    const Manifest& manifest_;
    size_t number_;
    const ManifestObject& object_;
    std::vector<std::byte> buffer_;
    int64_t loaded_ = -1;  ///< the piece in the buffer
    bool sized_ = false;
};

/// What is damaged in a committed step, all of which is read; "" when nothing is. Throws what the store throws.
std::string damage_of(CheckpointStore& store, int64_t step);

}  // namespace orrery
