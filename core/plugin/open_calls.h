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

/// Calls of plugins that have not returned yet, from any thread.
class OpenCalls {
public:
    using Clock = std::chrono::steady_clock;

    /// One call; in the list as long as this lives.
    class Call {
    public:
        /// `sample`: -1 where the call is about none. `plugin` and `function` must outlive it.
        Call(OpenCalls& all, std::string_view plugin, std::string_view function, int64_t sample = -1);
        ~Call();
        Call(const Call&) = delete;
        Call& operator=(const Call&) = delete;

        std::string text() const;  ///< "plugin data/tape: read of sample 17"

    private:
        friend class OpenCalls;
        OpenCalls& all_;
        const std::string_view plugin_, function_;
        const int64_t sample_;
        const std::thread::id thread_ = std::this_thread::get_id();
        const Clock::time_point begin_ = Clock::now();
        Call *before_ = nullptr, *next_ = nullptr;
    };

    /// Of a call that has lasted longer than `bound`; "" where none has. Of calls inside each other the inner one,
    /// where it has lasted for half of that.
    std::string overdue(std::chrono::milliseconds bound) const;

private:
    mutable std::mutex mutex_;
    Call* newest_ = nullptr;
};

/// A thread that reports a call that does not return.
class CallWatch {
public:
    /// `stuck` is called once, from that thread, with a message. `setting`: the key that `bound` is of.
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
