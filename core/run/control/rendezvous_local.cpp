#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>

#include <fmt/format.h>

#include "run/control/rendezvous.h"

namespace orrery {

struct LocalRendezvous::Store {
    mutable std::mutex mutex;
    std::map<std::string, std::string, std::less<>> values;
    /// By key: wakes the ranks that wait for the key, so that setting one key does not wake all ranks.
    std::map<std::string, std::shared_ptr<std::condition_variable>, std::less<>> waited;
    std::atomic<bool> is_lost{false};
    Message lost;

    void wake(std::string_view key) {
        const auto it = waited.find(key);
        if (it == waited.end()) return;
        it->second->notify_all();
        waited.erase(it);
    }
};

LocalRendezvous::LocalRendezvous() : store_(std::make_unique<Store>()) {}
LocalRendezvous::~LocalRendezvous() = default;

void LocalRendezvous::set(std::string_view key, std::string_view value) {
    const std::lock_guard lock(store_->mutex);
    store_->values.insert_or_assign(std::string(key), std::string(value));
    store_->wake(key);
}

std::string LocalRendezvous::get(std::string_view key, std::chrono::milliseconds timeout) {
    if (auto value = look(key, timeout)) return *std::move(value);
    throw Error(fmt::format("timed out: no rank set key '{}' within {} ms", key, timeout.count()), Fault::peer);
}

std::optional<std::string> LocalRendezvous::look(std::string_view key, std::chrono::milliseconds timeout) {
    std::unique_lock lock(store_->mutex);
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    for (;;) {
        if (const auto it = store_->values.find(key); it != store_->values.end()) return it->second;
        if (store_->is_lost)
            throw Error(fmt::format("waiting for key '{}': {}", key, store_->lost.shown()), Fault::peer);
        auto& waited = store_->waited[std::string(key)];
        if (!waited) waited = std::make_shared<std::condition_variable>();
        const auto changed = waited;
        if (changed->wait_until(lock, deadline) == std::cv_status::timeout && !store_->values.contains(key))
            return std::nullopt;
    }
}

void LocalRendezvous::erase(std::string_view key) {
    const std::lock_guard lock(store_->mutex);
    if (const auto it = store_->values.find(key); it != store_->values.end()) store_->values.erase(it);
}

int64_t LocalRendezvous::add(std::string_view key, int64_t amount) {
    const std::lock_guard lock(store_->mutex);
    std::string& value = store_->values[std::string(key)];
    const int64_t sum = (value.empty() ? 0 : std::stoll(value)) + amount;
    value = std::to_string(sum);
    store_->wake(key);
    return sum;
}

Message LocalRendezvous::lost() const {
    if (!store_->is_lost) return {};
    const std::lock_guard lock(store_->mutex);
    return store_->lost;
}

void LocalRendezvous::fail(int64_t rank, const Message& why) {
    const std::lock_guard lock(store_->mutex);
    if (store_->is_lost) return;
    store_->lost = fmt::format("rank {} failed: ", rank) + why;
    store_->is_lost = true;
    for (const auto& [key, waited] : store_->waited) waited->notify_all();
}

}  // namespace orrery
