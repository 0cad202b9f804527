#include "step_folder.h"

#include <algorithm>
#include <cctype>

namespace posix_store {

bool is_key(std::string_view key) {
    const bool plain = std::all_of(key.begin(), key.end(),
                                   [](unsigned char c) { return std::isalnum(c) || c == '.' || c == '-' || c == '_'; });
    const bool taken = key.starts_with(manifest_name) || key == mark_name || key == pin_name;
    return plain && !taken && !key.empty() && key.size() <= 200 && key[0] != '.';
}

std::string not_ours(const Folder& folder) {
    if (folder.size(marker) < 0) return "has no file " + marker;
    for (const std::string& name : folder.names())
        if (folder.kind(name) == 'd') return "holds the folder " + name;
    return "";
}

std::string manifest_problem(const Folder& folder) {
    constexpr int64_t longest = int64_t{1} << 30;
    const int64_t bytes = folder.size(manifest_name);
    if (bytes < 0)
        return folder.kind(manifest_name) == ' ' ? "has no " + manifest_name
                                                 : "has a " + manifest_name + " that is no file";
    if (bytes <= longest) return "";
    return "has a " + manifest_name + " of " + std::to_string(bytes) + " bytes, more than one ever has";
}

std::string leftover(const Folder& root, const std::string& name, const std::string& how) {
    const char kind = root.kind(name);
    if (kind == ' ') return "";
    int64_t bytes = std::max<int64_t>(root.size(name), 0);
    if (const Folder folder = kind == 'd' ? root.folder(name) : Folder())
        for (const std::string& file : folder.names()) bytes += std::max<int64_t>(folder.size(file), 0);
    return how + ": " + std::to_string(bytes) + " bytes";
}

std::string stray(const Folder& root, const std::string& name) {
    const char kind = root.kind(name);
    if (kind == 'l') return "is a symbolic link, which is not followed";
    if (kind != 'd') return "is no folder";
    const Folder folder = root.folder(name);
    if (!folder) return "";  // removed by another process
    if (const std::string why = manifest_problem(folder); !why.empty()) return why;
    const std::string why = not_ours(folder);
    return why.empty() ? "" : why + ", so it is read but never removed";
}

}  // namespace posix_store
