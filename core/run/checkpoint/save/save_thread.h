#pragma once
#include <pthread.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

namespace orrery {

/// A thread that runs one job at a time. A job is moved in and moved back with its result, so that only one thread at a
/// time can reach the objects in it.
template <class Job>
class SaveThread {
public:
    /// `work`: runs a job on the thread. It must not throw; it may call pause().
    explicit SaveThread(std::function<void(Job&, SaveThread&)> work)
        : work_(std::move(work)), thread_([this] { run(); }) {
        ::pthread_setname_np(thread_.native_handle(), "orrery-save");
    }
    /// The destructor waits for the current job to end.
    ~SaveThread() {
        notify([&] { ends_ = true; });
        thread_.join();
    }
    SaveThread(const SaveThread&) = delete;

    /// Starts a job on the thread. No other job may be running.
    void begin(Job job) {
        notify([&] {
            job_.emplace(std::move(job));
            busy_ = true;
            goes_on_ = false;
            paused_ = {};
        });
    }
    bool busy() const {
        const std::lock_guard lock(mutex_);
        return busy_;
    }
    /// Ends a pause of the job and blocks until no job is running.
    void wait() {
        go_on();
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return !busy_; });
    }
    /// The last job once it has ended, to read or to move from; nullptr: it is running, or there was none.
    Job* done() {
        const std::lock_guard lock(mutex_);
        return busy_ || !job_ ? nullptr : &*job_;
    }
    /// Called by `work`: blocks until go_on() or wait() is called or `at_most` has passed. Returns at once if go_on()
    /// or wait() was called since the job began.
    void pause(std::chrono::duration<double> at_most) {
        std::unique_lock lock(mutex_);
        pauses_since_ = Clock::now();
        changed_.wait_for(lock, at_most, [&] { return goes_on_ || ends_; });
        paused_ += Clock::now() - *std::exchange(pauses_since_, std::nullopt);
    }
    void go_on() {
        notify([&] { goes_on_ = true; });
    }
    double paused_s() const {
        const std::lock_guard lock(mutex_);
        std::chrono::duration<double> paused = paused_;
        if (pauses_since_) paused += Clock::now() - *pauses_since_;
        return paused.count();
    }

private:
    using Clock = std::chrono::steady_clock;

    template <class Change>
    void notify(Change change) {
        {
            const std::lock_guard lock(mutex_);
            change();
        }
        changed_.notify_all();
    }
    void run() {
        std::unique_lock lock(mutex_);
        for (;;) {
            changed_.wait(lock, [&] { return busy_ || ends_; });
            if (!busy_) return;
            Job job = *std::exchange(job_, std::nullopt);
            lock.unlock();
            work_(job, *this);
            lock.lock();
            job_.emplace(std::move(job));
            busy_ = false;
            changed_.notify_all();
        }
    }

    const std::function<void(Job&, SaveThread&)> work_;
    mutable std::mutex mutex_;  // guards all members below except thread_
    mutable std::condition_variable changed_;
    std::optional<Job> job_;
    bool busy_ = false, ends_ = false;
    bool goes_on_ = false;  ///< whether the current job must no longer pause
    std::chrono::duration<double> paused_{0};
    std::optional<std::chrono::steady_clock::time_point> pauses_since_;
    std::thread thread_;
};

}  // namespace orrery
