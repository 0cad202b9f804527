#pragma once
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/regular_file.h"
#include "orrery/tensor.h"

namespace orrery {

/// One tensor of a safetensors file, by its place in the file.
struct StoredTensor {
    std::string name;
    TensorType type;
    std::string foreign = {};  ///< its dtype where it is none of ours, as BOOL; type.dtype says nothing then
    int64_t begin = 0;         ///< bytes from the start of the file
    int64_t end = 0;

    /// "f32[8,512]", "BOOL[1,1,16,16]"
    std::string text() const;
};

/// The first part of a safetensors file: 8 bytes of header length, then JSON. Tensors come in the order of their data.
struct SafetensorsHeader {
    std::vector<StoredTensor> tensors;
    std::vector<std::pair<std::string, std::string>> metadata;

    const StoredTensor* find(std::string_view name) const;
};

/// Strict: no duplicate keys, sizes that agree with shapes, data without holes or overlaps up to exactly `file_bytes`.
/// Of a dtype that the format may have learned since only the place is judged. `start`: the first bytes of the file, at
/// least its header. Throws Error that begins with `place`.
SafetensorsHeader parse_safetensors(std::span<const std::byte> start, int64_t file_bytes, const std::string& place);

struct NamedTensor {
    std::string name;
    Tensor tensor;
};

/// What stands before the tensors in a safetensors file, padded so that data begins at a multiple of 64. Names must
/// differ.
std::vector<std::byte> safetensors_start(std::span<const NamedTensor> tensors,
                                         std::span<const std::pair<std::string, std::string>> metadata = {});

/// A file that is read where it is asked for, not mapped: one that is cut short meanwhile is an error, not a SIGBUS.
class SafetensorsFile {
public:
    /// Throws Error naming the path, the tensor and what is wrong.
    explicit SafetensorsFile(std::string path);

    const std::string& path() const { return path_; }
    const std::vector<StoredTensor>& tensors() const { return header_.tensors; }
    const SafetensorsHeader& header() const { return header_; }
    bool has(std::string_view name) const { return header_.find(name) != nullptr; }
    /// Its name, type and place. Throws Error with the names there are when it is missing.
    const StoredTensor& tensor(std::string_view name) const;
    /// All bytes of a tensor, whatever its dtype.
    std::vector<std::byte> bytes_of(std::string_view name) const;
    /// Whether both tensors have one type and the same bytes. Reads some MiB at a time.
    bool same(std::string_view name, const SafetensorsFile& other, std::string_view others_name) const;
    /// Copies the block that begins at `offset` and has out.shape, one entry per dim. Same dtype as stored, one
    /// of ours. Throws Fault::failed naming file and tensor where the file is shorter than it was, or cannot be read.
    void read(std::string_view name, const Shape& offset, const Tensor& out) const;

private:
    void read_at(const StoredTensor& tensor, int64_t offset, std::span<std::byte> out) const;

    std::string path_;
    RegularFile file_;
    SafetensorsHeader header_;
};

}  // namespace orrery
