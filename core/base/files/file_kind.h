#pragma once
#include <string_view>

namespace orrery {

/// A kind of file that users often give where another kind is needed.
struct FileKind {
    std::string_view begin;                ///< the first bytes of such a file
    std::string_view what;                 ///< text for messages: "a GGUF file"
    std::string_view as_weights, as_text;  ///< remedies if weights, or text, are needed but such a file was given
};

/// Returns the kind of a file by its first bytes (24 suffice); nullptr for kinds that are not in the table.
const FileKind* file_kind(std::string_view begin);

}  // namespace orrery
