#pragma once
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "sockets.h"

namespace tcp {

/// The socket of a MemberLink, with a thread that sends heartbeats and receives. A caller sends its request itself.
class Member final : public orrery::Member {
public:
    using Milliseconds = std::chrono::milliseconds;
    explicit Member(const orrery::JoinOptions& options);
    ~Member() override;

    void set(std::string_view key, std::string_view value) override { tell("set", key, value); }
    void erase(std::string_view key) override { tell("erase", key, {}); }
    std::string get(std::string_view key, Milliseconds timeout) override;
    std::optional<std::string> look(std::string_view key, Milliseconds timeout) override;
    int64_t add(std::string_view key, int64_t amount) override;
    std::string absent() override;
    orrery::Message lost() const override;
    void tell_position(std::function<std::string()> position) override;
    void leave() override { tell("leave", {}, {}); }
    void fail(const orrery::Loss& why) override;
    void gone(const orrery::Loss& how) override;
    orrery::Loss loss() const override;
    std::string run() const override;

private:
    void join(Clock::time_point deadline);
    bool shake_hands(Clock::time_point deadline);
    void tell(std::string_view what, std::string_view key, std::string_view value);
    void sent();
    std::optional<std::string> ask(std::string_view what, std::string_view key, std::string_view value,
                                   Milliseconds timeout);
    uint64_t request(std::unique_lock<std::mutex>& lock, std::string_view what, std::string_view key,
                     std::string_view value);
    void run();
    void receive();
    void flush();
    void noted();

    const orrery::JoinOptions options_;
    Fd socket_, bell_;
    std::atomic<bool> stop_{false}, is_lost_{false};
    std::mutex position_mutex_;  ///< guards position_
    std::function<std::string()> position_;
    mutable std::mutex mutex_;  ///< guards the members below
    std::condition_variable changed_;
    orrery::MemberLink link_;
    std::string out_;
    size_t sent_ = 0;  ///< bytes of out_
    std::thread thread_;
};

}  // namespace tcp
