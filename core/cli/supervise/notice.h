#pragma once
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace orrery {

/// What is wrong with a file that is to appear as a notice, "" when nothing is: it is there already, or what it would
/// lie in is no folder.
std::string notice_problem(const std::string& path);

/// Looks for a file four times a second, and asks this process to stop by SIGTERM once it is there, whatever it holds.
/// Says on stderr that it was, and once that it cannot be looked for any more.
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
