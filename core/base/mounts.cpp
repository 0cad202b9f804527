#include "base/mounts.h"

#include <charconv>
#include <sstream>

namespace orrery {
namespace {

/// Replaces the octal escapes of a path: "a\040b" -> "a b".
std::string unescaped(const std::string& text) {
    std::string out;
    for (size_t i = 0; i < text.size(); ++i) {
        int code = 0;
        const bool octal =
            text[i] == '\\' && i + 3 < text.size() &&
            std::from_chars(text.data() + i + 1, text.data() + i + 4, code, 8).ptr == text.data() + i + 4;
        out += octal ? static_cast<char>(code) : text[i];
        if (octal) i += 3;
    }
    return out;
}

}  // namespace

std::optional<Mount> mount_in(const std::string& line) {
    std::istringstream words(line);
    Mount mount;
    std::string parent, device, word;
    words >> mount.id >> parent >> device >> mount.root >> mount.point >> mount.options;
    while (words >> word && word != "-") {
    }
    if (!(words >> mount.type >> word >> mount.system_options)) return std::nullopt;
    mount.root = unescaped(mount.root);
    mount.point = unescaped(mount.point);
    return mount;
}

}  // namespace orrery
