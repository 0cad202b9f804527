#include "base/files/json_file.h"

#include <fmt/format.h>

#include "base/files/file_kind.h"
#include "base/json.h"
#include "base/regular_file.h"
#include "base/text.h"
#include "orrery/error.h"

namespace orrery {

Json read_json(const std::string& path, int64_t most_bytes, std::string_view remedy) {
    const RegularFile file(path);
    if (!file.problem().empty())
        throw Error(fmt::format("{} {}{}{}", path, file.problem(), remedy.empty() ? "" : "\n  ", remedy));
    if (file.bytes() > most_bytes)
        throw Error(fmt::format("{} is too large: {}, the limit is {}", path, bytes_text(file.bytes()),
                                bytes_text(most_bytes)));
    const std::string text = file.text(static_cast<size_t>(most_bytes));
    if (const FileKind* kind = file_kind(text))
        throw Error(fmt::format("{} is {}; expected JSON\n  {}", path, kind->what, kind->as_weights));
    return parse_json(text, {"", path});
}

}  // namespace orrery
