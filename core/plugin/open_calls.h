#pragma once
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

namespace orrery {

/// Calls of plugins that have not returned yet. Thread-safe.
class OpenCalls {
public:
    using Clock = std::chrono::steady_clock;

    /// One call of a plugin, listed while this object exists.
    class Call {
    public:
        /// Begins a call. `sample`: the sample's number; -1: none. `plugin` and `function` must outlive the object.
        Call(OpenCalls& all, std::string_view plugin, std::string_view function, int64_t sample = -1);
        ~Call();
        Call(const Call&) = delete;
        Call& operator=(const Call&) = delete;

        std::string text() const;  ///< describes the call: "plugin data/tape: read of sample 17"

    private:
        friend class OpenCalls;
        OpenCalls& all_;
        const std::string_view plugin_, function_;
        const int64_t sample_;
        const std::thread::id thread_ = std::this_thread::get_id();
        const Clock::time_point begin_ = Clock::now();
        Call *before_ = nullptr, *next_ = nullptr;
    };

    /// Describes a call that has lasted longer than `bound`; "" when there is none. If it has nested calls, describes
    /// the innermost one that has lasted at least half of `bound`.
    std::string overdue(std::chrono::milliseconds bound) const;

private:
    mutable std::mutex mutex_;
    Call* newest_ = nullptr;
};

class CallWatch {
public:
    /// If a call lasts longer than `bound`, the value of the key `setting`, calls `stuck` once, on its own thread.
    CallWatch(std::shared_ptr<const OpenCalls> calls, std::chrono::milliseconds bound, std::string setting,
              std::function<void(const std::string&)> stuck);
    ~CallWatch();

private:
    void look(std::chrono::milliseconds bound, const std::string& setting);

    const std::shared_ptr<const OpenCalls> calls_;
    const std::function<void(const std::string&)> stuck_;
    std::mutex mutex_;
    std::condition_variable changed_;
    bool end_ = false;
    std::thread thread_;
};

}  // namespace orrery
