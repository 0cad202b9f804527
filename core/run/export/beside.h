#pragma once
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace orrery {

/// Runs functions in order on its own thread. The first exception ends the work; the next call rethrows it.
class Beside {
public:
    Beside() : thread_([this] { run(); }) {}
    ~Beside();
    Beside(const Beside&) = delete;

    void add(std::function<void()> work);
    /// Returns once all functions have run. No other call may follow.
    void finish();

private:
    void run();

    std::mutex mutex_;
    std::condition_variable news_;
    std::deque<std::function<void()>> queue_;
    bool ends_ = false;
    bool dropped_ = false;  ///< whether the destructor drops functions that have not run
    std::exception_ptr problem_;
    std::thread thread_;  ///< declared last, since the thread uses the other members
};

}  // namespace orrery
