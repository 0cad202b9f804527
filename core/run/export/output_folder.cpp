#include "run/export/output_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "base/files/atomic_file.h"
#include "base/hash.h"
#include "base/text.h"
#include "orrery/error.h"
#include "run/checkpoint/save/folder_lock.h"

namespace orrery {

namespace {

namespace fs = std::filesystem;

std::string reason(int code) { return std::generic_category().message(code); }

/// Name of a file in FOLDER.part, which a running export locks; it also marks the folder as made by an export.
constexpr const char* lock_name = ".orrery-export";

bool is_there(const std::string& path) {
    std::error_code ignored;
    return fs::exists(fs::symlink_status(path, ignored));
}

std::string parent_of(const std::string& folder) {
    const fs::path parent = fs::path(folder).parent_path();
    return parent.empty() ? "." : parent.string();
}

[[noreturn]] void refuse_to_make(const std::string& what, int code) {
    const bool full = code == ENOSPC || code == EDQUOT || code == EIO;
    throw Error(fmt::format("export: cannot create {}: {}", what, reason(code)), full ? Fault::failed : Fault::usage);
}

/// Creates the folder and the folders that contain it, and flushes them, so that they survive a power cut.
void make_folders(const std::string& folder) {
    if (is_there(folder)) return;
    const std::string parent = parent_of(folder);
    make_folders(parent);
    if (::mkdir(folder.c_str(), 0777) != 0 && errno != EEXIST) refuse_to_make("the folder " + folder, errno);
    sync_folder(parent);
}

}  // namespace

OutputFolder::OutputFolder(std::string folder) : folder_(std::move(folder)) {
    while (folder_.size() > 1 && folder_.ends_with('/')) folder_.pop_back();
    if (folder_.empty()) throw Error("export: expected the name of a folder to write");
    part_ = folder_ + ".part";
    std::error_code problem;
    const fs::file_status there = fs::symlink_status(folder_, problem);
    if (fs::exists(there)) {
        if (!fs::is_directory(there))
            throw Error(fmt::format("export: {} exists and is not a folder\n  choose another name", folder_));
        if (!fs::is_empty(folder_, problem))
            throw Error(fmt::format("export: {} exists and is not empty\n  choose another folder", folder_));
    }
    make_folders(parent_of(folder_));
    lock_path_ = path(lock_name);
    bool renew = true;
    while (lock_ < 0 && !take(renew)) {
    }
}

OutputFolder::~OutputFolder() {
    std::error_code ignored;
    if (made_) fs::remove_all(part_, ignored);
    if (lock_ >= 0) ::close(lock_);
}

/// Takes the lock of FOLDER.part. Returns false if the folder is gone: another export finished or removed it, or this
/// export removed it to create it again (`renew`).
bool OutputFolder::take(bool& renew) {
    made_ = ::mkdir(part_.c_str(), 0777) == 0;
    if (!made_ && errno != EEXIST) refuse_to_make(part_, errno);
    std::error_code gone;
    const bool left = !made_ && !fs::is_empty(part_, gone);
    if (!made_ && !gone && (!fs::is_directory(fs::symlink_status(part_, gone)) || (left && !is_there(lock_path_))))
        throw Error(fmt::format(
            "export: {} exists and was not made by an export\n  move it away, or choose another folder", part_));
    lock_ = ::open(lock_path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (lock_ < 0) {
        const int code = errno;
        if (!made_ && code == ENOENT) return false;
        if (made_) ::rmdir(part_.c_str());
        throw Error(fmt::format("export: cannot create {}: {}{}", lock_path_, reason(code), link_advice(code)),
                    Fault::failed);
    }
    if (::flock(lock_, LOCK_EX | LOCK_NB) != 0 && (errno == EWOULDBLOCK || !made_)) {
        // The file system may lack locks; then another export may be writing the folder.
        const int code = errno;
        ::close(lock_);
        throw Error(code == EWOULDBLOCK
                        ? fmt::format("export: another export is writing {}\n  choose another folder", part_)
                        : fmt::format("export: cannot lock {}: {}\n  remove it if no export is writing it, or choose "
                                      "another folder{}",
                                      part_, reason(code), flock_advice(code)));
    }
    struct stat held {
    }, there{};
    if (::fstat(lock_, &held) != 0 || ::stat(lock_path_.c_str(), &there) != 0 || held.st_ino != there.st_ino) {
        ::close(std::exchange(lock_, -1));
        return false;
    }
    const bool old = !std::exchange(made_, true);
    if (left) clear();
    if (!old || !std::exchange(renew, false)) return true;
    ::unlink(lock_path_.c_str());
    made_ = ::rmdir(part_.c_str()) != 0;
    ::close(std::exchange(lock_, -1));
    return false;
}

void OutputFolder::clear() const {
    std::error_code problem;
    std::vector<fs::path> old;
    for (fs::directory_iterator at(part_, problem), end; !problem && at != end; at.increment(problem))
        if (at->path().filename() != lock_name) old.push_back(at->path());
    for (const fs::path& path : old)
        if (!problem) fs::remove_all(path, problem);
    if (problem)
        throw Error(
            fmt::format("export: cannot remove the files of a killed export in {}: {}", part_, problem.message()),
            Fault::failed);
}

void OutputFolder::require_room(int64_t bytes) const {
    std::error_code unknown;
    const fs::space_info space = fs::space(part_, unknown);
    if (unknown || space.available >= static_cast<uint64_t>(bytes)) return;
    throw Error(fmt::format("export: not enough disk space for {}: needs {}, {} available", folder_, bytes_text(bytes),
                            bytes_text(static_cast<int64_t>(space.available))),
                Fault::failed);
}

void OutputFolder::write(const std::string& name, std::string_view contents) const {
    const OutputFile file(path(name), static_cast<int64_t>(contents.size()));
    file.write(0, bytes_of(contents));
    file.settle();
}

void OutputFolder::finish() {
    sync_folder(part_);
    if (::rename(part_.c_str(), folder_.c_str()) != 0)  // rename() replaces only an empty folder
        throw Error(fmt::format("export: cannot rename {} to {}: {}", part_, folder_, reason(errno)), Fault::failed);
    made_ = false;
    ::unlink((folder_ + "/" + lock_name).c_str());  // after the rename, so that FOLDER.part stays marked
    sync_folder(folder_);
    sync_folder(parent_of(folder_));
}

OutputFile::OutputFile(std::string path, int64_t bytes) : path_(std::move(path)), bytes_(bytes) {
    file_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file_ < 0) throw Error(fmt::format("cannot create {}: {}", path_, reason(errno)), Fault::failed);
}

OutputFile::~OutputFile() {
    if (file_ >= 0) ::close(file_);
}

void OutputFile::write(int64_t offset, std::span<const std::byte> bytes) const {
    constexpr size_t most = size_t{8} << 20;
    while (!bytes.empty()) {
        const ssize_t wrote = ::pwrite(file_, bytes.data(), std::min(most, bytes.size()), static_cast<off_t>(offset));
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote < 0)
            throw Error(fmt::format("cannot write the {} bytes of {}: {}", bytes_, path_, reason(errno)),
                        Fault::failed);
        bytes = bytes.subspan(static_cast<size_t>(wrote));
        offset += wrote;
    }
}

void OutputFile::send(int64_t offset, int64_t bytes) const {
    ::sync_file_range(file_, offset, bytes, SYNC_FILE_RANGE_WRITE);  // only a hint; settle() flushes
}

void OutputFile::settle() const {
    if (::fsync(file_) != 0)
        throw Error(fmt::format("cannot write the {} bytes of {}: {}", bytes_, path_, reason(errno)), Fault::failed);
}

void OutputFile::read(int64_t offset, std::span<std::byte> bytes) const {
    while (!bytes.empty()) {
        const ssize_t got = ::pread(file_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0)
            throw Error(fmt::format("cannot read {} back at byte {}: {}", path_, offset,
                                    got == 0 ? "it ends there" : reason(errno)),
                        Fault::failed);
        bytes = bytes.subspan(static_cast<size_t>(got));
        offset += got;
    }
}

}  // namespace orrery
