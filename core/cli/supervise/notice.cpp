#include "cli/supervise/notice.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

namespace orrery {

std::string notice_problem(const std::string& path) {
    struct stat found {};
    if (::stat(path.c_str(), &found) == 0)
        return S_ISDIR(found.st_mode)
                   ? "is a folder\n  name a file that is created when the machine is about to be taken away"
                   : "already exists: the run would stop at once\n  remove it, or name another";
    if (errno != ENOENT) return fmt::format("cannot be checked: {}\n  name another file", std::strerror(errno));
    const std::filesystem::path folder = std::filesystem::path(path).parent_path();
    if (folder.empty() || (::stat(folder.c_str(), &found) == 0 && S_ISDIR(found.st_mode))) return "";
    return fmt::format("cannot be created: {} is not a folder\n  create the folder, or name another file",
                       folder.string());
}

NoticeWatch::NoticeWatch(std::string path) : path_(std::move(path)), thread_([this] { run(); }) {}

NoticeWatch::~NoticeWatch() {
    {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
    }
    stop_.notify_all();
    thread_.join();
}

void NoticeWatch::run() {
    bool said = false;
    std::unique_lock lock(mutex_);
    while (!stop_.wait_for(lock, std::chrono::milliseconds(250), [this] { return stopping_; })) {
        struct stat found {};
        if (::stat(path_.c_str(), &found) == 0) {
            std::fprintf(stderr,
                         "orrery: preemption notice: the file %s exists (run.notice_file), which counts as "
                         "SIGTERM: a checkpoint is saved if time allows\n",
                         path_.c_str());
            ::kill(::getpid(), SIGTERM);  // the run is stopped as by any SIGTERM
            return;
        }
        if (errno == ENOENT || said) continue;
        said = true;
        std::fprintf(stderr,
                     "orrery: cannot check for the preemption notice %s (run.notice_file): %s; the run continues\n",
                     path_.c_str(), std::strerror(errno));
    }
}

}  // namespace orrery
