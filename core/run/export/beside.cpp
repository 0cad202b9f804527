#include "run/export/beside.h"

namespace orrery {

Beside::~Beside() {
    if (!thread_.joinable()) return;
    {
        const std::lock_guard lock(mutex_);
        ends_ = dropped_ = true;
    }
    news_.notify_all();
    thread_.join();
}

void Beside::add(std::function<void()> work) {
    {
        const std::lock_guard lock(mutex_);
        if (problem_) std::rethrow_exception(problem_);
        queue_.push_back(std::move(work));
    }
    news_.notify_all();
}

void Beside::finish() {
    {
        const std::lock_guard lock(mutex_);
        ends_ = true;
    }
    news_.notify_all();
    thread_.join();
    if (problem_) std::rethrow_exception(problem_);
}

void Beside::run() {
    for (;;) {
        std::function<void()> work;
        {
            std::unique_lock lock(mutex_);
            news_.wait(lock, [&] { return ends_ || !queue_.empty(); });
            if (dropped_ || queue_.empty()) return;
            work = std::move(queue_.front());
            queue_.pop_front();
        }
        try {
            work();
        } catch (...) {
            const std::lock_guard lock(mutex_);
            problem_ = std::current_exception();
            return;
        }
    }
}

}  // namespace orrery
