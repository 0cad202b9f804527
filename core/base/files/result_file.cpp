#include "base/files/result_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "base/env.h"
#include "orrery/error.h"

namespace orrery {
namespace {

namespace fs = std::filesystem;

struct Target {
    fs::path path;
    bool whole = false;  ///< true: a regular file, or a path without a file
};

fs::path folder_of(const fs::path& path) { return path.has_parent_path() ? path.parent_path() : fs::path("."); }

Target target_of(const fs::path& file) {
    constexpr int most_links = 40;  // the kernel's limit of links followed in a path
    fs::path path = file;
    for (int links = 0; links < most_links; ++links) {
        std::error_code unknown;
        // Links such as /dev/stdout are not followed into /proc: this process also writes to the files open there.
        if (fs::canonical(folder_of(path), unknown).string().starts_with("/proc/")) break;
        const fs::file_type kind = fs::symlink_status(path, unknown).type();
        if (kind != fs::file_type::symlink)
            return {path, kind == fs::file_type::regular || kind == fs::file_type::not_found};
        path = folder_of(path) / fs::read_symlink(path, unknown);
    }
    return {file, false};
}

std::string reason(int code) { return std::generic_category().message(code); }

/// Returns why the file cannot be written; "": it can.
std::string why_not(const std::string& file) {
    if (file.empty()) return "expected the name of a file";
    const Target target = target_of(file);
    std::error_code unknown;
    const fs::file_type kind = fs::status(target.path, unknown).type();
    if (kind == fs::file_type::none) return unknown.message();
    if (kind == fs::file_type::directory) return "is a folder\n  name a file in it";
    if (kind == fs::file_type::block) return "is a block device, a disk\n  name a file";
    if (kind != fs::file_type::not_found && ::access(target.path.c_str(), W_OK) != 0)
        return "cannot be written: " + reason(errno);
    if (!target.whole) return "";
    const fs::path folder = folder_of(target.path);
    if (!fs::exists(folder, unknown))
        return fmt::format("there is no folder {}\n  make it, or name another file", folder.string());
    if (!fs::is_directory(folder, unknown)) return fmt::format("{} is no folder", folder.string());
    if (::access(folder.c_str(), W_OK | X_OK) != 0)
        return fmt::format("no file can be made in {}: {}", folder.string(), reason(errno));
    return "";
}

}  // namespace

void require_writable(std::string_view option, const std::string& file) {
    if (const std::string why = why_not(file); !why.empty())
        throw Error(fmt::format("{} {}: {}", option, file.empty() ? "''" : file, why));
}

bool is_own_file(const std::string& file) { return target_of(file).whole; }

void write_result(const std::string& file, std::string_view contents) {
    const Target target = target_of(file);
    if (target.whole)
        system_env()->replace_file(target.path, contents);
    else
        system_env()->append_file(target.path, contents);
}

}  // namespace orrery
