#include "folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <limits>
#include <system_error>
#include <utility>

#include "orrery/error.h"

namespace posix_store {

namespace {

struct File {
    int number;
    ~File() {
        if (number >= 0) ::close(number);
    }
};

constexpr int folder_flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;

}  // namespace

void fail(const std::string& what, const std::string& path, int code) {
    throw orrery::Error("cannot " + what + " " + path + ": " + std::generic_category().message(code),
                        orrery::Fault::failed);
}

bool refuses_for_good(int code) {
    return code == EXDEV || code == EPERM || code == EACCES || code == EROFS || code == EBUSY;
}

int64_t free_bytes(const std::string& path) {
    namespace fs = std::filesystem;
    std::error_code problem;
    fs::path at = fs::absolute(path, problem);
    while (!problem && !fs::exists(at, problem) && at != at.parent_path()) at = at.parent_path();
    const fs::space_info space = problem ? fs::space_info{} : fs::space(at, problem);
    constexpr auto most = static_cast<uintmax_t>(std::numeric_limits<int64_t>::max());
    return problem || space.available > most ? -1 : static_cast<int64_t>(space.available);
}

Folder::Folder(Folder&& other) noexcept : file_(std::exchange(other.file_, -1)), path_(std::move(other.path_)) {}

Folder& Folder::operator=(Folder&& other) noexcept {
    std::swap(file_, other.file_);
    std::swap(path_, other.path_);
    return *this;
}

Folder::~Folder() {
    if (file_ >= 0) ::close(file_);
}

Folder Folder::find(const std::string& path) {
    const int file = ::open(path.c_str(), folder_flags);
    if (file < 0 && errno == ENOENT) return {};
    if (file < 0) fail("open", path, errno);
    return {file, path};
}

Folder Folder::make(const std::string& path) {
    if (Folder there = find(path)) return there;
    const size_t cut = path.find_last_of('/');
    const std::string name = cut == std::string::npos ? path : path.substr(cut + 1);
    if (name.empty()) return make(path.substr(0, cut));
    const Folder parent = make(cut == std::string::npos ? "." : cut == 0 ? "/" : path.substr(0, cut));
    if (parent.make_folder(name)) parent.sync();
    Folder made = find(path);
    if (!made) fail("open", path, ENOENT);
    return made;
}

char Folder::kind(const std::string& name) const {
    struct stat info {};
    if (::fstatat(file_, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) {
        if (errno == ENOENT) return ' ';
        fail("look at", at(name), errno);
    }
    return S_ISDIR(info.st_mode) ? 'd' : S_ISREG(info.st_mode) ? '-' : S_ISLNK(info.st_mode) ? 'l' : '?';
}

Folder Folder::folder(const std::string& name) const {
    const int file = ::openat(file_, name.c_str(), folder_flags | O_NOFOLLOW);
    if (file < 0 && errno == ENOENT) return {};
    // O_DIRECTORY with O_NOFOLLOW fails with ENOTDIR for symbolic links too.
    if (file < 0) fail("open the folder", at(name), errno);
    return {file, at(name)};
}

bool Folder::make_folder(const std::string& name) const {
    if (::mkdirat(file_, name.c_str(), 0755) == 0) return true;
    if (errno != EEXIST) fail("make the folder", at(name), errno);
    return false;
}

int64_t Folder::size(const std::string& name) const {
    struct stat info {};
    if (::fstatat(file_, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) {
        if (errno == ENOENT) return -1;
        fail("look at", at(name), errno);
    }
    return S_ISREG(info.st_mode) ? info.st_size : -1;
}

int64_t Folder::held_alone(const std::string& name) const {
    struct stat info {};
    const bool there = ::fstatat(file_, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0;
    constexpr int64_t block = 512;  // the unit of st_blocks on every file system
    return there && S_ISREG(info.st_mode) && info.st_nlink == 1 ? info.st_blocks * block : 0;
}

int64_t Folder::owner(const std::string& name) const {
    struct stat info {};
    if (::fstatat(file_, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0) return info.st_uid;
    if (errno != ENOENT) fail("look at", at(name), errno);
    return -1;
}

void Folder::write(const std::string& name, std::span<const std::span<const std::byte>> parts) const {
    size_t all = 0;
    for (const auto& bytes : parts) all += bytes.size();
    constexpr size_t piece = size_t{8} << 20;
    const File file{::openat(file_, name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644)};
    if (file.number < 0) fail("create", at(name), errno);
    const auto give_up = [&](int code) {
        ::unlinkat(file_, name.c_str(), 0);
        fail("write the " + std::to_string(all) + " bytes of", at(name), code);
    };
    for (const auto& bytes : parts)
        for (size_t done = 0; done < bytes.size();) {
            const ssize_t wrote = ::write(file.number, bytes.data() + done, std::min(piece, bytes.size() - done));
            if (wrote < 0 && errno == EINTR) continue;
            if (wrote < 0) give_up(errno);
            done += static_cast<size_t>(wrote);
        }
    if (::fsync(file.number) != 0) give_up(errno);
    // Drop the file from the page cache, so that the read-back reads the disk.
    ::posix_fadvise(file.number, 0, 0, POSIX_FADV_DONTNEED);
}

void Folder::touch(const std::string& name) const {
    const File file{::openat(file_, name.c_str(), O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644)};
    if (file.number < 0) fail("create", at(name), errno);
}

bool Folder::make_file(const std::string& name) const {
    const File file{::openat(file_, name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644)};
    if (file.number < 0 && errno == EEXIST) return false;
    if (file.number < 0) fail("create", at(name), errno);
    if (::fsync(file.number) != 0) fail("flush", at(name), errno);
    return true;
}

bool Folder::link(const std::string& name, const Folder& to, const std::string& to_name) const {
    if (::linkat(file_, name.c_str(), to.file_, to_name.c_str(), 0) == 0) return true;
    const int code = errno;
    const bool unable = code == EPERM || code == EOPNOTSUPP || code == ENOSYS || code == EMLINK || code == EXDEV;
    if (!unable) fail("link " + at(name) + " as", to.at(to_name), code);
    return false;
}

bool Folder::same(const Folder& other) const {
    struct stat mine {
    }, its{};
    if (::fstat(file_, &mine) != 0 || ::fstat(other.file_, &its) != 0) fail("look at", path_, errno);
    return mine.st_dev == its.st_dev && mine.st_ino == its.st_ino;
}

void Folder::replace(const std::string& name, std::string_view text) const {
    const std::string fresh = "." + name + ".new";
    remove_file(fresh);  // left by an interrupted call
    const auto bytes = std::as_bytes(std::span(text.data(), text.size()));
    write(fresh, {&bytes, 1});
    if (::renameat(file_, fresh.c_str(), file_, name.c_str()) != 0) fail("rename to " + name, at(fresh), errno);
    sync();
}

int64_t Folder::file_system() const {
    struct statfs info {};
    if (::fstatfs(file_, &info) != 0) fail("read the type of the file system of", path_, errno);
    return static_cast<int64_t>(info.f_type);
}

void Folder::read(const std::string& name, int64_t offset, std::span<std::byte> bytes) const {
    const File file{::openat(file_, name.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC)};
    if (file.number < 0) fail("read", at(name), errno);
    for (size_t done = 0; done < bytes.size();) {
        const ssize_t got =
            ::pread(file.number, bytes.data() + done, bytes.size() - done, offset + static_cast<off_t>(done));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) fail("read", at(name), errno);
        if (got == 0)
            throw orrery::Error(at(name) + " is truncated: asked for " + std::to_string(bytes.size()) +
                                    " bytes from byte " + std::to_string(offset) + ", it ends at byte " +
                                    std::to_string(offset + static_cast<int64_t>(done)),
                                orrery::Fault::failed);
        done += static_cast<size_t>(got);
    }
}

void Folder::sync() const {
    if (::fsync(file_) != 0) fail("flush the folder", path_, errno);
}

int Folder::try_rename(const std::string& from, const std::string& to) const {
    int code = ::renameat2(file_, from.c_str(), file_, to.c_str(), RENAME_NOREPLACE) == 0 ? 0 : errno;
    // Network file systems lack NOREPLACE. A plain rename replaces files but no folder that has entries, as all of ours
    // have; so only files must be checked for.
    if (code == EINVAL || code == ENOSYS) {
        if (kind(to) != ' ') return EEXIST;
        code = ::renameat(file_, from.c_str(), file_, to.c_str()) == 0 ? 0 : errno;
    }
    return code == ENOTEMPTY ? EEXIST : code;
}

bool Folder::rename(const std::string& from, const std::string& to) const {
    const int code = try_rename(from, to);
    if (code != 0 && code != EEXIST) fail("rename to " + to, at(from), code);
    return code == 0;
}

void Folder::remove_file(const std::string& name) const {
    if (::unlinkat(file_, name.c_str(), 0) != 0 && errno != ENOENT) fail("remove", at(name), errno);
}

void Folder::remove_folder(const std::string& name) const {
    if (::unlinkat(file_, name.c_str(), AT_REMOVEDIR) != 0 && errno != ENOENT) fail("remove", at(name), errno);
}

std::vector<std::string> Folder::names() const {
    // fdopendir takes ownership of its descriptor and position, so that it gets one of its own.
    const int file = ::openat(file_, ".", folder_flags);
    DIR* list = file < 0 ? nullptr : ::fdopendir(file);
    if (!list) {
        const int code = errno;
        if (file >= 0) ::close(file);
        fail("list", path_, code);
    }
    std::vector<std::string> names;
    errno = 0;
    while (const dirent* entry = ::readdir(list)) {
        const std::string name = entry->d_name;
        if (name != "." && name != "..") names.push_back(name);
        errno = 0;
    }
    const int code = errno;
    ::closedir(list);
    if (code != 0) fail("list", path_, code);
    std::sort(names.begin(), names.end());
    return names;
}

}  // namespace posix_store
