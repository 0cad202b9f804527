#include <chrono>

#include "apart/apart.h"

namespace orrery::apart {

void Mark::set(int64_t time, std::exception_ptr failure) {
    const std::lock_guard lock(mutex_);
    done_ = true;
    time_ = time;
    failure_ = failure;
    changed_.notify_all();
}

void Mark::reset() {
    const std::lock_guard lock(mutex_);
    done_ = false;
    failure_ = nullptr;
}

int64_t Mark::join() {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, std::chrono::seconds(30), [&] { return done_; }))
        throw Error("queued work hangs", Fault::failed);
    if (failure_) std::rethrow_exception(failure_);
    return time_;
}

int64_t Mark::wait() {
    if (recorded) throw Error("the host waits for work that is only recorded", Fault::failed);
    return join();
}

bool Mark::done() {
    if (recorded) throw Error("the host asks for work that is only recorded", Fault::failed);
    const std::lock_guard lock(mutex_);
    if (done_ && failure_) std::rethrow_exception(failure_);
    return done_;
}

void Recording::add(Queue& queue, Work work) {
    Clock& clock = clocks_[&queue];
    ++clock[&queue];
    items_.push_back({&queue, std::move(work)});
}

void Recording::set(Queue& queue, const std::shared_ptr<Mark>& mark) {
    mark->clock = clocks_[&queue];
    marks_.push_back(mark);
    items_.push_back({&queue, [mark](int64_t& now) { mark->set(now); }});
}

void Recording::wait(Queue& queue, const std::shared_ptr<Mark>& mark) {
    Clock& clock = clocks_[&queue];
    for (const auto& [other, done] : mark->clock) clock[other] = std::max(clock[other], done);
    items_.push_back({&queue, [mark](int64_t& now) { now = std::max(now, mark->join()); }});
}

bool Recording::loose() const {
    const Clock& known = clocks_.at(&origin_);
    for (const auto& [queue, clock] : clocks_) {
        const auto own = clock.find(queue);
        const auto seen = known.find(queue);
        if (own != clock.end() && (seen == known.end() || seen->second < own->second)) return true;
    }
    return false;
}

void Recording::replay(int64_t since) {
    for (const auto& mark : marks_) mark->reset();
    const auto begin = std::make_shared<Mark>();
    origin_.add([begin](int64_t& now) { begin->set(now); }, since);
    for (const auto& [queue, clock] : clocks_)
        if (queue != &origin_) queue->add([begin](int64_t& now) { now = std::max(now, begin->join()); });
    for (const Item& item : items_) item.queue->add(item.work);
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

void Queue::add(Work work, int64_t since) {
    const std::lock_guard lock(mutex_);
    work_.emplace_back(std::move(work), since);
    changed_.notify_all();
}

int64_t Queue::drain() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return work_.empty() && !busy_; });
    if (failure_) std::rethrow_exception(failure_);
    return now_;
}

/// After a failure nothing runs any more, as on a GPU.
void Queue::run() {
    std::unique_lock lock(mutex_);
    for (;;) {
        changed_.wait(lock, [&] { return over_ || !work_.empty(); });
        if (work_.empty()) return;
        auto [work, since] = std::move(work_.front());
        work_.pop_front();
        busy_ = true;
        pauses_ = pauses_ * 1664525u + 1013904223u;
        const bool pause = pauses_ >> 28 == 0;
        int64_t now = std::max(now_, since);
        lock.unlock();
        std::exception_ptr failure;
        try {
            if (pause) std::this_thread::sleep_for(std::chrono::microseconds(200));
            if (!failure_) work(now);
        } catch (...) {
            failure = std::current_exception();
        }
        work = nullptr;
        lock.lock();
        now_ = now;
        if (failure && !failure_) failure_ = failure;
        busy_ = false;
        changed_.notify_all();
    }
}

}  // namespace orrery::apart
