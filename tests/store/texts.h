#pragma once
#include <span>
#include <string>
#include <string_view>

#include "orrery/checkpoint.h"

namespace orrery {

inline std::span<const std::byte> bytes_of_text(std::string_view text) {
    return std::as_bytes(std::span<const char>(text.data(), text.size()));
}

inline std::string text_at(CheckpointStore& store, int64_t step, const std::string& key, int64_t offset, size_t count) {
    std::string text(count, '\0');
    store.get(step, key, offset, std::as_writable_bytes(std::span(text)));
    return text;
}

}  // namespace orrery
