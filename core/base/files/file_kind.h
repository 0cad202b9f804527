#pragma once
#include <string_view>

namespace orrery {

/// What people have in place of the file that they name.
struct FileKind {
    std::string_view begin;                ///< its first bytes
    std::string_view what;                 ///< "a GGUF file"
    std::string_view as_weights, as_text;  ///< what to do who wants weights, or text, of it
};

/// Told by the first bytes, 24 at most; null where none of the kinds begins so.
const FileKind* file_kind(std::string_view begin);

}  // namespace orrery
