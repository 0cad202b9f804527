#include "run/checkpoint/folder_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>

#include "base/env.h"
#include "orrery/error.h"
#include "run/control/address.h"

namespace orrery {

FolderLock::FolderLock(const std::string& folder, const std::string& name) {
    const auto env = system_env();
    env->make_folders(folder);
    const std::string path = folder + "/" + name;
    file_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (file_ < 0) throw Error(fmt::format("cannot write {}: {}", path, std::strerror(errno)), Fault::failed);
    const auto until = env->now() + std::chrono::seconds(2);
    while (::flock(file_, LOCK_EX | LOCK_NB) != 0) {
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
            throw Error(fmt::format("cannot lock {}: {}", path, std::strerror(reason)), Fault::failed);
        throw Error(fmt::format("{} is in use by another run{}\n  wait for it, stop it, or choose another run.folder",
                                folder, read > 0 ? fmt::format(" ({})", holder) : ""));
    }
    const std::string me = fmt::format("pid {} on host {}", ::getpid(), host_name());
    // For the message alone: without it the lock holds as well.
    if (::ftruncate(file_, 0) == 0 && ::pwrite(file_, me.data(), me.size(), 0) < 0) return;
}

FolderLock::~FolderLock() {
    if (file_ >= 0) ::close(file_);
}

}  // namespace orrery
