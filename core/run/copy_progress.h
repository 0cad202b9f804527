#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>

namespace orrery {

/// How far a copy has come, for a thread that writes what is copied. In parts, in order.
class CopyProgress {
public:
    /// Who waits calls it first, with the parts that it waits for: it may copy what nobody has begun.
    void helped_by(std::function<void(int64_t)> help) { help_ = std::move(help); }

    /// Nothing is copied. By the thread that writes, before the copy is begun.
    void begin() { copied_.store(0, std::memory_order_relaxed); }
    /// The first `parts` are copied. By those who copy, one at a time, and never fewer than before.
    void reach(int64_t parts) {
        copied_.store(parts, std::memory_order_release);
        copied_.notify_all();
    }
    /// Returns when the first `parts` are copied; not counted as a wait.
    void join(int64_t parts) const {
        for (int64_t now; (now = copied_.load(std::memory_order_acquire)) < parts;)
            copied_.wait(now, std::memory_order_acquire);
    }

    /// Returns when the first `parts` are copied, or no copy has begun; whether it had to wait, or to copy itself.
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
    /// In all copies so far.
    double waited_s() const { return 1e-6 * static_cast<double>(waited_us_.load(std::memory_order_relaxed)); }

    /// Waits that have begun: whoever sees one sees all that was written before it.
    int64_t waits() const { return waits_.load(std::memory_order_acquire); }

private:
    std::atomic<int64_t> copied_{std::numeric_limits<int64_t>::max()};
    std::atomic<int64_t> waited_us_{0}, waits_{0};
    std::function<void(int64_t)> help_;
};

}  // namespace orrery
