#pragma once
#include <string_view>

namespace orrery {

/// A kind of file that users often name by mistake.
struct FileKind {
    std::string_view begin;                ///< the first bytes of such a file
    std::string_view what;                 ///< text for messages: "a GGUF file"
    std::string_view as_weights, as_text;  ///< remedies if weights, or text, are needed but such a file was given
};

/// Detects a kind of file from its first bytes (24 suffice); nullptr for files of other kinds.
const FileKind* file_kind(std::string_view begin);

}  // namespace orrery
