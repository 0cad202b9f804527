#include "run/control/secret_volume.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <climits>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string_view>

#include "base/mounts.h"
#include "base/text.h"

namespace orrery {
namespace {

/// The number after "mnt_id:" in what the kernel tells of an open file; "": it does not.
std::string mount_id(int file) {
    std::ifstream info("/proc/self/fdinfo/" + std::to_string(file));
    for (std::string word; info >> word;)
        if (word == "mnt_id:" && info >> word) return word;
    return "";
}

/// The mount through which a file was opened.
std::optional<Mount> mount_of(int file) {
    const std::string wanted = mount_id(file);
    std::ifstream all("/proc/self/mountinfo");
    for (std::string line; std::getline(all, line);)
        if (auto mount = mount_in(line); mount && mount->id == wanted) return mount;
    return std::nullopt;
}

/// The inode number of a namespace, "/proc/self/ns/mnt"; 0 if this process may not see it.
ino_t namespace_of(const char* path) {
    struct stat info {};
    return ::stat(path, &info) == 0 ? info.st_ino : 0;
}

bool has_own_mounts() {
    constexpr ino_t first_pid_namespace = 0xEFFFFFFC;  // the machine's (PROC_PID_INIT_INO)
    std::error_code problem;
    // If not, /proc is that of another namespace, and its process 1 is not the first of this container.
    if (std::filesystem::read_symlink("/proc/self", problem) != std::to_string(::getpid())) return false;
    const ino_t pids = namespace_of("/proc/self/ns/pid");
    if (pids != first_pid_namespace) return pids != 0;
    const ino_t of_machine = namespace_of("/proc/1/ns/mnt");
    return of_machine != 0 && of_machine != namespace_of("/proc/self/ns/mnt");
}

/// Whether `path` is POINT/..FOLDER/FILE.
bool is_in_dated_folder(const std::string& path, const std::string& point) {
    if (!path.starts_with(point + "/..")) return false;
    const std::string_view rest = std::string_view(path).substr(point.size() + 1);
    const size_t slash = rest.find('/');
    return slash > 2 && slash != std::string_view::npos && rest.find('/', slash + 1) == std::string_view::npos;
}

bool is_in_secret_volume(int file) {
    struct statfs system {};
    const auto mount = mount_of(file);
    if (::fstatfs(file, &system) != 0 || system.f_type != TMPFS_MAGIC || !mount) return false;
    bool read_only = false;
    for (const std::string& option : split(mount->options, ',')) read_only = read_only || option == "ro";
    char path[PATH_MAX];
    const ssize_t bytes = ::readlink(("/proc/self/fd/" + std::to_string(file)).c_str(), path, sizeof path);
    return read_only && mount->type == "tmpfs" && mount->root == "/" && bytes > 0 &&
           is_in_dated_folder(std::string(path, static_cast<size_t>(bytes)), mount->point) && has_own_mounts();
}

}  // namespace

bool is_in_secret_volume(const std::string& path, const struct stat& info) {
    const int file = ::open(path.c_str(), O_PATH | O_CLOEXEC);
    if (file < 0) return false;
    struct stat now {};
    const bool same = ::fstat(file, &now) == 0 && now.st_dev == info.st_dev && now.st_ino == info.st_ino;
    const bool inside = same && is_in_secret_volume(file);
    ::close(file);
    return inside;
}

}  // namespace orrery
