#include "lua/deadline.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace orrery::lua {

Deadline::Deadline(double seconds, std::function<void(const Origin&)> late) : late_(std::move(late)) {
    ::pthread_getcpuclockid(::pthread_self(), &clock_);
    end_s_ = used_s() + seconds;
    // Other threads handle signals, so the watching thread blocks all signals but those of its own faults.
    sigset_t all, before;
    ::sigfillset(&all);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) ::sigdelset(&all, fault);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    thread_ = std::thread([this] { watch(); });
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Deadline::~Deadline() {
    {
        const std::lock_guard lock(mutex_);
        over_ = true;
    }
    changed_.notify_all();
    thread_.join();
}

void Deadline::see(Origin place) {
    const std::lock_guard lock(mutex_);
    seen_ = std::move(place);
}

double Deadline::used_s() const {
    timespec time{};
    ::clock_gettime(clock_, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

void Deadline::watch() {
    constexpr double longest_s = 3600;
    std::unique_lock lock(mutex_);
    while (!over_) {
        if (paused_ > 0) {
            changed_.wait(lock);
            continue;
        }
        const double left = end_s_ - used_s();  // processor time is at most wall time, so waiting `left` is safe
        if (left <= 0) return late_(seen_);
        changed_.wait_for(lock, std::chrono::duration<double>(std::min(left, longest_s)));
    }
}

Deadline::Pause::Pause(Deadline* deadline) : deadline_(deadline) {
    if (!deadline_) return;
    const std::lock_guard lock(deadline_->mutex_);
    ++deadline_->paused_;
    began_ = deadline_->used_s();
}

Deadline::Pause::~Pause() {
    if (!deadline_) return;
    {
        const std::lock_guard lock(deadline_->mutex_);
        if (--deadline_->paused_ == 0) deadline_->end_s_ += deadline_->used_s() - began_;
    }
    deadline_->changed_.notify_all();
}

}  // namespace orrery::lua
