#pragma once
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "layout/shards.h"
#include "orrery/checkpoint.h"
#include "orrery/mark.h"

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
    int64_t written = 0;         ///< the step it was written for; a later one links it
};

struct ManifestShard {
    int64_t object = 0;  ///< index into Manifest::objects
    int64_t begin = 0;   ///< first byte in the object
    Block box;           ///< which part of the tensor
};

struct ManifestTensor {
    std::string name;
    TensorType type;  ///< global
    std::vector<ManifestShard> shards = {};
    Layout splits = {};                ///< on the mesh of the manifest; who may have written a block of it
    std::vector<int64_t> stages = {};  ///< coordinates of the axis of stages where it lies; empty: all
};

/// An index: an object of the step that says what one rank has written.
struct IndexEntry {
    int64_t rank = 0;
    int64_t bytes = 0;
    std::string sha256;

    std::string key() const;  ///< "rank-00000.index.json"
};

/// Which part of a tensor is wanted.
struct Wanted {
    std::string_view name;
    Block box;
};

/// What a checkpoint says of itself: a root (JSON, whose last key, `digest`, is the SHA-256 of all before it) that
/// names tensors and, with their digests, an index per rank.
struct Manifest {
    static constexpr int64_t version = 2;                    ///< what is written and read
    static constexpr int64_t last_step = 1'000'000'000'000;  ///< 30 years at 1 ms; counts of samples stay below 2^63
    static constexpr int64_t longest = int64_t{32} << 20;    ///< bytes of a root, an index

    int64_t step = 0;
    std::string mesh;  ///< "dp=2 tp=2", for people
    std::string host;  ///< JSON object
    int64_t piece_bytes = 0;
    std::vector<ManifestObject> objects;
    std::vector<ManifestTensor> tensors;
    Mesh axes = {};
    AxisId stage_axis = none;         ///< of `axes`
    std::vector<IndexEntry> indexes;  ///< by rank

    /// The root.
    std::string text() const;
    /// A root. Throws Damaged, beginning with `place`, when the text is damaged, its parts do not fit together, or it
    /// is of another version.
    static Manifest parse(std::string_view text, const std::string& place);
    /// The root of a committed step: names and types of tensors, `host`. Throws as parse does, also when it is that of
    /// another step, and what the store throws.
    static Manifest root_of(CheckpointStore& store, int64_t step);
    /// The whole manifest of a committed step: reads every index, and throws Damaged unless each tensor is covered
    /// once.
    static Manifest of(CheckpointStore& store, int64_t step);

    /// Of a root: reads the indexes of the ranks that can have written a part of what is wanted, which must be covered
    /// once. Names that are not in it, and blocks of other dims, are not looked at.
    void load(CheckpointStore& store, std::span<const Wanted> wanted);
    /// Throws Error unless the shards that are here cover what is wanted once; passes over the same.
    void check_cover(std::span<const Wanted> wanted) const;

    // Of a manifest that was parsed:
    const ManifestTensor* find(std::string_view name) const;
    /// What lies in an object, as (tensor, shard), by first byte; tensors that hold nothing come first.
    std::vector<std::vector<std::pair<size_t, size_t>>> held;
    std::map<std::string, size_t, std::less<>> places;  ///< of tensors, by name

    /// Fills `held` and `places`. Throws when two tensors have one name.
    void arrange();
};

/// Under which name a shard lies in its object: the tensor's, or "w#1" for the second of its shards there.
std::string stored_name(const std::string& tensor, int64_t before);

/// Reads a range of an object, piece by piece, each checked against its CRC-32C.
class ObjectReader {
public:
    ObjectReader(CheckpointStore& store, const Manifest& manifest, int64_t object);

    /// Throws Damaged naming the object, the tensor, the byte and what is wrong: missing, cut short, swapped with
    /// another object, or damaged. What the store throws goes through, here and below.
    void read(int64_t offset, std::span<std::byte> out, std::string_view tensor);
    /// Throws Damaged unless the object's own header has the manifest's step, names, types and places.
    void check_header(std::string_view tensor = {});
    /// "" when all pieces and the header agree; `digest`: and the SHA-256.
    std::string verify(bool digest = true);

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

/// Whether the step is committed.
bool has_step(CheckpointStore& store, int64_t step);

}  // namespace orrery
