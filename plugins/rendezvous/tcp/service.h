#pragma once
#include <atomic>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "sockets.h"

namespace tcp {

/// The sockets of a Membership, with one thread that carries out its actions.
class Service final : public orrery::RendezvousService {
public:
    Service(const orrery::ServeOptions& options, const Ports& ports);
    ~Service() override;
    int port() const override { return port_; }
    void fail(const orrery::Loss& why) override;
    bool joined(int64_t rank) const override;
    bool gone(const orrery::Loss& how) override;
    orrery::Loss loss() const override;

private:
    struct Connection {
        Fd socket;
        std::string out = {};
        size_t sent = 0;  ///< bytes of `out`
        bool closing = false;
    };
    void run();
    void listen(bool wanted);
    void accept_some(Clock::time_point now);
    void receive(uint64_t number, Clock::time_point now);
    void forget(uint64_t number);
    void perform(Clock::time_point now);
    bool flush(uint64_t number, Connection& connection);
    int wait_ms(Clock::time_point now) const;

    const std::chrono::milliseconds silence_;
    Fd listener_, bell_, poll_;
    int port_ = 0;
    bool listening_ = false;
    Clock::time_point paused_;  ///< no connection is accepted before: the process has no file descriptor left
    std::atomic<bool> stop_{false};
    mutable std::mutex mutex_;  ///< guards the members below
    orrery::Membership membership_;
    std::map<uint64_t, Connection> connections_;
    std::set<uint64_t> blocked_;  ///< connections with unsent bytes
    uint64_t numbers_ = 1;
    std::thread thread_;
};

}  // namespace tcp
