#pragma once
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace orrery {

/// Returns why a notice file cannot be watched: it exists already, or its parent is not a folder. "": it can.
std::string notice_problem(const std::string& path);

/// Checks four times a second whether a file exists and then stops this process with SIGTERM. Reports on stderr that
/// the file appeared, and once if it can no longer be checked.
class NoticeWatch {
public:
    explicit NoticeWatch(std::string path);
    ~NoticeWatch();
    NoticeWatch(const NoticeWatch&) = delete;

private:
    void run();

    const std::string path_;
    std::mutex mutex_;
    std::condition_variable stop_;
    bool stopping_ = false;
    std::thread thread_;
};

}  // namespace orrery
