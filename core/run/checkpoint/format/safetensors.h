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

/// One tensor of a safetensors file: its type and its position in the file.
struct StoredTensor {
    std::string name;
    TensorType type;
    std::string foreign = {};  ///< dtype that Orrery lacks ("BOOL"), then type.dtype means nothing; "": none
    int64_t begin = 0;         ///< offset of the tensor's first byte from the start of the file
    int64_t end = 0;

    /// The tensor's dtype and shape as text: "f32[8,512]", "BOOL[1,1,16,16]".
    std::string text() const;
};

/// The parsed header of a safetensors file. Tensors are in the order of their data.
struct SafetensorsHeader {
    std::vector<StoredTensor> tensors;
    std::vector<std::pair<std::string, std::string>> metadata;

    const StoredTensor* find(std::string_view name) const;
};

/// Parses a safetensors header strictly: unique keys, sizes that match shapes, data without holes or overlaps that ends
/// at exactly `file_bytes`. The size of a tensor of unknown dtype is not compared with its shape. `start`: first bytes
/// of the file, at least the 8 bytes of header length and the header. Throws Error that starts with `place`.
SafetensorsHeader parse_safetensors(std::span<const std::byte> start, int64_t file_bytes, const std::string& place);

struct NamedTensor {
    std::string name;
    Tensor tensor;
};

/// The bytes before the tensor data of a safetensors file: header length and header, padded to a multiple of 64 bytes.
/// Names must differ. Throws Error for a name that is not UTF-8.
std::vector<std::byte> safetensors_start(std::span<const NamedTensor> tensors,
                                         std::span<const std::pair<std::string, std::string>> metadata = {});

/// A safetensors file that is open for reading. It is not mapped to memory, so that truncating it meanwhile is an error
/// instead of a SIGBUS.
class SafetensorsFile {
public:
    /// Opens a file and parses its header. Throws Error naming the path, the tensor and what is wrong.
    explicit SafetensorsFile(std::string path);

    const std::string& path() const { return path_; }
    const std::vector<StoredTensor>& tensors() const { return header_.tensors; }
    const SafetensorsHeader& header() const { return header_; }
    bool has(std::string_view name) const { return header_.find(name) != nullptr; }
    /// Finds a tensor. Throws Error that lists similar names if it is missing.
    const StoredTensor& tensor(std::string_view name) const;
    /// Reads all bytes of a tensor of any dtype.
    std::vector<std::byte> bytes_of(std::string_view name) const;
    /// Whether tensor `name` here and `others_name` in `other` have the same type and bytes. Reads 8 MiB at a time.
    bool same(std::string_view name, const SafetensorsFile& other, std::string_view others_name) const;
    /// Copies the block of a tensor that begins at `offset` and has the shape of `out`, which must have the stored
    /// dtype. Throws Fault::failed naming file and tensor if the file was truncated or cannot be read.
    void read(std::string_view name, const Shape& offset, const Tensor& out) const;

private:
    void read_at(const StoredTensor& tensor, int64_t offset, std::span<std::byte> out) const;

    std::string path_;
    RegularFile file_;
    SafetensorsHeader header_;
};

}  // namespace orrery
