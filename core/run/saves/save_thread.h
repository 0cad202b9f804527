#pragma once
#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
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
    /// Lets other threads go first from now on, where they want the processor that it has.
    void yield_to_others();
    bool busy() const;
    /// Returns when there is no work at hand.
    void wait() const;
    /// What the last work threw, nullptr: nothing. Not while there is some at hand.
    std::exception_ptr failure() const;

private:
    void run();

    mutable std::mutex mutex_;  // guards what follows
    mutable std::condition_variable changed_;
    std::function<void()> work_;
    bool busy_ = false, ends_ = false;
    std::exception_ptr failure_;
    std::thread thread_;
};

}  // namespace orrery
