#include <chrono>

#include "apart/apart.h"

namespace orrery::apart {

void Mark::set(std::exception_ptr failure) {
    const std::lock_guard lock(mutex_);
    done_ = true;
    failure_ = failure;
    changed_.notify_all();
}

void Mark::wait() {
    if (recording) throw Error("the host waits for work that is only recorded", Fault::failed);
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, std::chrono::seconds(30), [&] { return done_; }))
        throw Error("queued work hangs", Fault::failed);
    if (failure_) std::rethrow_exception(failure_);
}

bool Mark::done() {
    if (recording) throw Error("the host asks for work that is only recorded", Fault::failed);
    const std::lock_guard lock(mutex_);
    if (done_ && failure_) std::rethrow_exception(failure_);
    return done_;
}

Queue::Queue() : thread_([this] { run(); }) {}

Queue::~Queue() {
    {
        const std::lock_guard lock(mutex_);
        over_ = true;
        changed_.notify_all();
    }
    thread_.join();
}

void Queue::add(Work work) {
    const std::lock_guard lock(mutex_);
    work_.push_back(std::move(work));
    changed_.notify_all();
}

void Queue::drain() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return work_.empty() && !busy_; });
    if (failure_) std::rethrow_exception(failure_);
}

/// After a failure nothing runs any more, as on a GPU.
void Queue::run() {
    std::unique_lock lock(mutex_);
    for (;;) {
        changed_.wait(lock, [&] { return over_ || !work_.empty(); });
        if (work_.empty()) return;
        Work work = std::move(work_.front());
        work_.pop_front();
        busy_ = true;
        pauses_ = pauses_ * 1664525u + 1013904223u;
        const bool pause = pauses_ >> 28 == 0;
        lock.unlock();
        std::exception_ptr failure;
        try {
            if (pause) std::this_thread::sleep_for(std::chrono::microseconds(200));
            if (!failure_) work();
        } catch (...) {
            failure = std::current_exception();
        }
        work = nullptr;
        lock.lock();
        if (failure && !failure_) failure_ = failure;
        busy_ = false;
        changed_.notify_all();
    }
}

}  // namespace orrery::apart
