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

/// Thrown if a checkpoint's contents are wrong, as opposed to a store that cannot be read at the moment. Fault::failed.
class Damaged : public Error {
public:
    explicit Damaged(const std::string& text) : Error(text, Fault::failed) {}
    Damaged(const Origin& where, const std::string& text) : Error(where, text, Fault::failed) {}
};

/// Key in an object's safetensors metadata; its value is the step that the object was written for.
inline constexpr const char* step_key = "step";

/// One data object of a checkpoint: a safetensors file that holds shards of tensors.
struct ManifestObject {
    std::string key;
    int64_t rank = 0;
    int64_t bytes = 0;
    std::string sha256;
    std::vector<uint32_t> crcs;  ///< CRC-32C of each piece (Manifest::piece_bytes) of the object
    int64_t written = 0;         ///< step of the save that wrote it; later steps may link to the object
};

struct ManifestShard {
    int64_t object = 0;  ///< index, in Manifest::objects, of the object that holds the shard
    int64_t begin = 0;   ///< offset of the shard's first byte in the object
    Block box;
};

struct ManifestTensor {
    std::string name;
    TensorType type;  ///< dtype and global shape
    std::vector<ManifestShard> shards = {};
    Layout splits = {};                ///< layout on Manifest::axes, which tells which ranks may have written a block
    std::vector<int64_t> stages = {};  ///< pipeline stages that hold the tensor (coordinates on stage_axis); empty: all
};

/// A rank's index, as a checkpoint's root lists it. The index is a JSON file that lists what the rank wrote.
struct IndexEntry {
    int64_t rank = 0;
    int64_t bytes = 0;
    std::string sha256;

    std::string key() const;  ///< key in the store: "rank-00000.index.json"
};

/// The block of a tensor that a caller wants to read.
struct Wanted {
    std::string_view name;
    Block box;
};

/// Describes a checkpoint. Its root is a JSON text that lists the tensors and the digest of each rank's index. Objects
/// and shards are in the indexes. The root's last key, `digest`, is the SHA-256 of the JSON without that key.
struct Manifest {
    static constexpr int64_t version = 2;
    static constexpr int64_t last_step = 1'000'000'000'000;  ///< max step, so that sample counts stay below 2^63
    static constexpr int64_t longest = int64_t{32} << 20;    ///< max bytes of a root or an index

    int64_t step = 0;
    std::string mesh;  ///< text for people: "dp=2 tp=2"
    std::string host;  ///< JSON object of the training: seed, data cursor, losses
    int64_t piece_bytes = 0;
    std::vector<ManifestObject> objects;
    std::vector<ManifestTensor> tensors;
    Mesh axes = {};
    AxisId stage_axis = none;         ///< axis of `axes` for pipeline stages; none: no pipeline
    std::vector<IndexEntry> indexes;  ///< one per rank that wrote objects, ascending by rank

    /// The checkpoint's root as JSON text.
    std::string text() const;
    /// Parses a checkpoint's root; objects and shards stay empty. Throws Damaged, starting with `place`, if the text is
    /// damaged, inconsistent or of another format version.
    static Manifest parse(std::string_view text, const std::string& place);
    /// Reads and parses a committed step's root. Throws Damaged if it is damaged or of another version or step.
    static Manifest root_of(CheckpointStore& store, int64_t step);
    /// Reads the root and every index of a committed step. Throws Damaged unless the shards cover each tensor exactly
    /// once.
    static Manifest of(CheckpointStore& store, int64_t step);

    /// Reads the indexes of the ranks that may have written a part of the wanted blocks and adds them to this root.
    /// Throws Damaged unless the shards cover each wanted block exactly once. Ignores names that the root lacks, and
    /// blocks with another number of dims than the tensor.
    void load(CheckpointStore& store, std::span<const Wanted> wanted);
    /// Throws Error unless the loaded shards cover exactly once each wanted block of a known name and number of dims.
    void check_cover(std::span<const Wanted> wanted) const;

    /// The tensor called `name`; nullptr if there is none. arrange() must have been called.
    const ManifestTensor* find(std::string_view name) const;
    /// For each object, its shards as (index into `tensors`, index into the tensor's shards), ascending by first byte.
    std::vector<std::vector<std::pair<size_t, size_t>>> held;
    std::map<std::string, size_t, std::less<>> places;  ///< tensor name -> index into `tensors`

    /// Fills `held` and `places`. Throws if two tensors have the same name.
    void arrange();
};

/// The name of a shard in its object: the tensor's name for its first shard there, "w#1" for the second shard of "w".
/// `before`: number of earlier shards of the tensor in that object.
std::string stored_name(const std::string& tensor, int64_t before);

/// Reads byte ranges of one object of a checkpoint and checks the CRC-32C of each piece. Holds one piece in memory.
class ObjectReader {
public:
    ObjectReader(CheckpointStore& store, const Manifest& manifest, int64_t object);

    /// Throws Damaged naming the object, `tensor` and the bytes if the object is missing, cut short, swapped with
    /// another object, or damaged. Errors of the store pass through, as in the functions below.
    void read(int64_t offset, std::span<std::byte> out, std::string_view tensor);
    /// Throws Damaged unless the object's safetensors header has the manifest's step, names, types and offsets.
    void check_header(std::string_view tensor = {});
    /// Reads the whole object. Returns the damage found; "" if all checksums and the header match the manifest.
    /// `digest`: also compares the SHA-256 of the object.
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
    int64_t loaded_ = -1;  ///< number of the piece in buffer_; -1: none
    bool sized_ = false;
};

/// Reads a committed step completely. Returns the first damage found; "" if there is none. Throws what the store
/// throws.
std::string damage_of(CheckpointStore& store, int64_t step);

bool has_step(CheckpointStore& store, int64_t step);

}  // namespace orrery
