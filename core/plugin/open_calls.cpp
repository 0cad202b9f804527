#include "plugin/open_calls.h"

#include <fmt/format.h>

#include <algorithm>

namespace orrery {

OpenCalls::Call::Call(OpenCalls& all, std::string_view plugin, std::string_view function, int64_t sample)
    : all_(all), plugin_(plugin), function_(function), sample_(sample) {
    const std::lock_guard lock(all_.mutex_);
    before_ = all_.newest_;
    if (before_) before_->next_ = this;
    all_.newest_ = this;
}

OpenCalls::Call::~Call() {
    const std::lock_guard lock(all_.mutex_);
    if (before_) before_->next_ = next_;
    (next_ ? next_->before_ : all_.newest_) = before_;
}

std::string OpenCalls::Call::text() const {
    return fmt::format("plugin {}: {}{}", plugin_, function_, sample_ < 0 ? "" : fmt::format(" of sample {}", sample_));
}

std::string OpenCalls::overdue(std::chrono::milliseconds bound) const {
    const auto now = Clock::now();
    const std::lock_guard lock(mutex_);
    const Call* late = nullptr;
    for (const Call* call = newest_; call; call = call->before_)
        if (now - call->begin_ >= bound) late = call;
    if (!late) return "";
    for (const Call* call = newest_; call != late; call = call->before_)
        if (call->thread_ == late->thread_ && now - call->begin_ >= bound / 2) return call->text();
    return late->text();
}

CallWatch::CallWatch(std::shared_ptr<const OpenCalls> calls, std::chrono::milliseconds bound, std::string setting,
                     std::function<void(const std::string&)> stuck)
    : calls_(std::move(calls)), stuck_(std::move(stuck)) {
    thread_ = std::thread([this, bound, setting = std::move(setting)] { look(bound, setting); });
}

CallWatch::~CallWatch() {
    {
        const std::lock_guard lock(mutex_);
        end_ = true;
    }
    changed_.notify_all();
    thread_.join();
}

void CallWatch::look(std::chrono::milliseconds bound, const std::string& setting) {
    const auto often =
        std::clamp<std::chrono::milliseconds>(bound / 50, std::chrono::milliseconds(5), std::chrono::milliseconds(500));
    std::unique_lock lock(mutex_);
    while (!changed_.wait_for(lock, often, [this] { return end_; })) {
        const std::string late = calls_->overdue(bound);
        if (late.empty()) continue;
        lock.unlock();
        stuck_(fmt::format("{} did not return within {:g} s ({})", late, std::chrono::duration<double>(bound).count(),
                           setting));
        return;
    }
}

}  // namespace orrery
