#include "run/saves/save_thread.h"

#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <utility>

namespace orrery {

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
    }
    changed_.notify_all();
}

void SaveThread::yield_to_others() {
    constexpr int tenth = 10;  // a nice value: of a processor that a step wants as well it gets a tenth
    begin([] { ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), tenth); });
    wait();
}

bool SaveThread::busy() const {
    const std::lock_guard lock(mutex_);
    return busy_;
}

void SaveThread::wait() const {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !busy_; });
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
