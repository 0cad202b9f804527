#pragma once
#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

namespace orrery {

/// A thread that does one piece of work at a time, for another one that goes on meanwhile and asks how it stands.
class SaveThread {
public:
    SaveThread();
    /// Waits for the work at hand.
    ~SaveThread();
    SaveThread(const SaveThread&) = delete;

    /// There must be none at hand.
    void begin(std::function<void()> work);
    bool busy() const;
    /// Ends a pause; returns when there is no work at hand.
    void wait();
    /// Called by the work: until go_on() or wait() is, also if that was before, or so much time has passed.
    void pause(std::chrono::duration<double> at_most);
    void go_on();
    /// Seconds that the work at hand, or the last one, has paused.
    double paused_s() const;
    /// What the last work threw, nullptr: nothing. Not while there is some at hand.
    std::exception_ptr failure() const;

private:
    void run();

    mutable std::mutex mutex_;  // guards what follows
    mutable std::condition_variable changed_;
    std::function<void()> work_;
    bool busy_ = false, ends_ = false;
    bool goes_on_ = false;  ///< the work at hand does not pause
    std::chrono::duration<double> paused_{0};
    std::optional<std::chrono::steady_clock::time_point> pauses_since_;
    std::exception_ptr failure_;
    std::thread thread_;
};

}  // namespace orrery
