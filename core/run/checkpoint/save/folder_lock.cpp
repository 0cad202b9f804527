#include "run/checkpoint/save/folder_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "base/env.h"
#include "orrery/error.h"
#include "run/control/address.h"

namespace orrery {

std::string flock_advice(int code) {
    if (code == ENOLCK)
        return "\n  flock needs NFS's lock service here: mount without the option nolock and run rpc.statd on this "
               "host, or "
               "mount with -o local_lock=flock where no other host uses the folder";
    if (code == ENOSYS || code == EOPNOTSUPP || code == EINVAL)
        return "\n  this file system is mounted without flock: mount Lustre with -o flock (or with -o localflock where "
               "no "
               "other host uses the folder), or choose a folder on another file system";
    return "";
}

std::string link_advice(int code) {
    if (code != ELOOP) return "";
    return "\n  it is a symbolic link, which is not followed: two names of one file would not keep two jobs apart\n"
           "  remove the link; the file is made again";
}

/// Whether the locked file still exists under its name, since the lock's previous holder may have deleted it.
bool FolderLock::is_there() const {
    struct stat mine {
    }, now{};
    return ::fstat(file_, &mine) == 0 && ::lstat(path_.c_str(), &now) == 0 && mine.st_ino == now.st_ino &&
           mine.st_dev == now.st_dev;
}

FolderLock::FolderLock(const std::string& folder, const std::string& name, const char* by, const char* instead,
                       bool passing)
    : path_(folder + "/" + name), passing_(passing) {
    const auto env = system_env();
    env->make_folders(folder);
    const auto until = env->now() + std::chrono::seconds(2);
    for (;;) {
        if (file_ < 0) file_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
        if (file_ < 0)
            throw Error(fmt::format("cannot write {}: {}{}", path_, std::strerror(errno), link_advice(errno)),
                        Fault::failed);
        if (::flock(file_, LOCK_EX | LOCK_NB) == 0) {
            if (!passing_ || is_there()) break;
            ::close(std::exchange(file_, -1));
            if (env->now() < until) continue;
            throw Error(fmt::format("cannot lock {}: the file was replaced again and again while it was locked", path_),
                        Fault::failed);
        }
        const int reason = errno;
        if (reason == EINTR) continue;
        if (reason == EWOULDBLOCK && env->now() < until) {
            env->sleep(std::chrono::milliseconds(50));
            continue;
        }
        char holder[128] = {};
        const ssize_t read = ::pread(file_, holder, sizeof holder - 1, 0);
        ::close(file_);
        if (reason != EWOULDBLOCK)
            throw Error(fmt::format("cannot lock {}: {}{}", path_, std::strerror(reason), flock_advice(reason)),
                        Fault::failed);
        throw Error(fmt::format("{} is in use by {}{}\n  wait for it, stop it, or choose another {}", folder, by,
                                read > 0 ? fmt::format(" ({})", holder) : "", instead));
    }
    const std::string me = fmt::format("pid {} on host {}", ::getpid(), host_name());
    // The holder's name in the file is only for messages, so a failed write is ignored.
    if (::ftruncate(file_, 0) == 0 && ::pwrite(file_, me.data(), me.size(), 0) < 0) return;
}

std::unique_ptr<FolderLock> FolderLock::of_step(const std::string& place, int64_t step) {
    return std::unique_ptr<FolderLock>(
        new FolderLock(place, fmt::format(".step-{:08}.lock", step), "another copy of that step", "folder", true));
}

FolderLock::~FolderLock() {
    if (file_ < 0) return;
    if (passing_) ::unlink(path_.c_str());  // still locked: a process that waits for the lock checks is_there()
    ::close(file_);
}

}  // namespace orrery
