#pragma once
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace orrery {

/// Returns why a notice file, which stops a run, cannot be watched: it exists, or its parent is not a folder; or "".
std::string notice_problem(const std::string& path);

/// Stops this process with SIGTERM when a file appears; checks four times a second. Reports on stderr that the file
/// appeared and, once, that it can no longer be checked.
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
