#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>

namespace orrery {

/// The progress of a memory copy made in numbered parts, in order. A thread that overwrites the source waits for it.
class CopyProgress {
public:
    /// Sets a function that a thread calls before it waits, with the number of parts it needs; it may copy parts.
    void helped_by(std::function<void(int64_t)> help) { help_ = std::move(help); }

    /// Marks the copy as begun. Called by the thread that overwrites the source.
    void begin() { copied_.store(0, std::memory_order_relaxed); }
    /// Reports that the first `parts` parts are copied. Copying threads call it one at a time, with increasing numbers.
    void reach(int64_t parts) {
        copied_.store(parts, std::memory_order_release);
        copied_.notify_all();
    }
    /// Blocks until the first `parts` parts are copied. This wait is not counted by waits() and waited_s().
    void join(int64_t parts) const {
        for (int64_t now; (now = copied_.load(std::memory_order_acquire)) < parts;)
            copied_.wait(now, std::memory_order_acquire);
    }

    /// Blocks until the first `parts` parts are copied; returns at once if no copy is in progress. Returns true if it
    /// had to wait.
    bool wait_for(int64_t parts) {
        if (copied_.load(std::memory_order_acquire) >= parts) return false;
        const auto began = std::chrono::steady_clock::now();
        waits_.fetch_add(1, std::memory_order_release);
        if (help_) help_(parts);
        join(parts);
        waited_us_.fetch_add(
            std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - began).count(),
            std::memory_order_relaxed);
        return true;
    }
    /// Seconds spent in wait_for(), over all copies so far.
    double waited_s() const { return 1e-6 * static_cast<double>(waited_us_.load(std::memory_order_relaxed)); }

    /// Number of waits begun in wait_for(). Its reader also sees all memory that was written before they began.
    int64_t waits() const { return waits_.load(std::memory_order_acquire); }

private:
    std::atomic<int64_t> copied_{std::numeric_limits<int64_t>::max()};
    std::atomic<int64_t> waited_us_{0}, waits_{0};
    std::function<void(int64_t)> help_;
};

}  // namespace orrery
