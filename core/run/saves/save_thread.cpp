#include "run/saves/save_thread.h"

#include <pthread.h>

#include <utility>

namespace orrery {

using Clock = std::chrono::steady_clock;

SaveThread::SaveThread() : thread_([this] { run(); }) {
    ::pthread_setname_np(thread_.native_handle(), "orrery-save");  // as top and /proc show it
}

SaveThread::~SaveThread() {
    {
        const std::lock_guard lock(mutex_);
        ends_ = true;
    }
    changed_.notify_all();
    thread_.join();
}

void SaveThread::begin(std::function<void()> work) {
    {
        const std::lock_guard lock(mutex_);
        work_ = std::move(work);
        failure_ = nullptr;
        busy_ = true;
        goes_on_ = false;
        paused_ = {};
    }
    changed_.notify_all();
}

bool SaveThread::busy() const {
    const std::lock_guard lock(mutex_);
    return busy_;
}

void SaveThread::wait() {
    go_on();
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !busy_; });
}

void SaveThread::pause(std::chrono::duration<double> at_most) {
    std::unique_lock lock(mutex_);
    pauses_since_ = Clock::now();
    changed_.wait_for(lock, at_most, [&] { return goes_on_ || ends_; });
    paused_ += Clock::now() - *std::exchange(pauses_since_, std::nullopt);
}

double SaveThread::paused_s() const {
    const std::lock_guard lock(mutex_);
    std::chrono::duration<double> paused = paused_;
    if (pauses_since_) paused += Clock::now() - *pauses_since_;
    return paused.count();
}

void SaveThread::go_on() {
    {
        const std::lock_guard lock(mutex_);
        goes_on_ = true;
    }
    changed_.notify_all();
}

std::exception_ptr SaveThread::failure() const {
    const std::lock_guard lock(mutex_);
    return failure_;
}

void SaveThread::run() {
    std::unique_lock lock(mutex_);
    for (;;) {
        changed_.wait(lock, [&] { return busy_ || ends_; });
        if (!busy_) return;
        std::function<void()> work = std::exchange(work_, {});
        lock.unlock();
        std::exception_ptr failure;
        try {
            work();
        } catch (...) {
            failure = std::current_exception();
        }
        work = {};  // what it holds is gone before anybody goes on
        lock.lock();
        failure_ = std::move(failure);
        busy_ = false;
        changed_.notify_all();
    }
}

}  // namespace orrery
