#pragma once
#include <cstring>

#include "run/checkpoint/format/safetensors.h"

namespace orrery {

/// The bytes of a safetensors file of these tensors, in this order.
inline std::vector<std::byte> safetensors_bytes(std::span<const NamedTensor> tensors,
                                                std::span<const std::pair<std::string, std::string>> metadata = {}) {
    std::vector<std::byte> file = safetensors_start(tensors, metadata);
    const size_t start = file.size();
    size_t bytes = start;
    for (const NamedTensor& item : tensors) bytes += static_cast<size_t>(item.tensor.bytes());
    file.resize(bytes);
    std::byte* out = file.data() + start;
    for (const NamedTensor& item : tensors) {
        const auto size = static_cast<size_t>(item.tensor.bytes());
        if (size > 0) std::memcpy(out, item.tensor.data, size);
        out += size;
    }
    return file;
}

}  // namespace orrery
