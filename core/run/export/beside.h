#pragma once
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace orrery {

/// Work that a thread of its own does in order, beside the one that asks for it. What it throws ends the work, and is
/// thrown by the next call.
class Beside {
public:
    Beside() : thread_([this] { run(); }) {}
    ~Beside();
    Beside(const Beside&) = delete;

    void add(std::function<void()> work);
    /// Returns when all is done. The last call.
    void finish();

private:
    void run();

    std::mutex mutex_;
    std::condition_variable news_;
    std::deque<std::function<void()>> queue_;
    bool ends_ = false;     ///< nothing more comes
    bool dropped_ = false;  ///< what is left is not done
    std::exception_ptr problem_;
    std::thread thread_;  ///< the last: it uses the others
};

}  // namespace orrery
