#pragma once
#include <poll.h>

#include <chrono>
#include <cstdint>
#include <list>
#include <map>
#include <string>
#include <vector>

#include "run/control/rendezvous_wire.h"

namespace orrery::wire {

/// A connection that has sent a whole hello, not judged yet.
struct Candidate {
    Fd socket;
    Nonce nonce;  ///< of its challenge
    Hello hello;
    std::string from;  ///< numeric address
};

/// The listening socket and the connections that have not proved themselves. At most `most` are open: a newer one
/// closes the oldest, but none before it has had `least`, so that a flood cannot push out a rank that answers at once.
/// None has longer than `longest` for its hello. Who is closed may come again.
class Strangers {
public:
    using Clock = std::chrono::steady_clock;
    static constexpr size_t most = 64;
    static constexpr auto least = std::chrono::milliseconds(20);
    static constexpr auto longest = std::chrono::seconds(1);

    /// Throws Error naming host and port when it is in use or cannot be bound.
    Strangers(const std::string& host, int port);

    int port() const;
    /// What to poll for: listener and strangers, appended.
    void add_to(std::vector<pollfd>& fds) const;
    /// How long a poll may last until something falls due; at most `limit`.
    std::chrono::milliseconds until_due(std::chrono::milliseconds limit) const;
    /// After the poll: reads, closes who is late, accepts. `fds` begins where add_to() appended.
    std::vector<Candidate> serve(const pollfd* fds);

private:
    struct Stranger {
        Fd socket;
        Nonce nonce;
        Clock::time_point since;
        std::string in, from;
        bool closed = false;
    };
    bool full() const { return open_.size() >= most && Clock::now() - open_.front().since < least; }
    void receive(Stranger& stranger, std::vector<Candidate>& complete);
    void accept_some();

    Fd listener_;
    std::list<Stranger> open_;  ///< the oldest first
};

/// How many were refused, and from where.
class Refusals {
public:
    void count(const std::string& from);
    /// "; 3 connections with another token or job were refused: 2 from 10.0.0.7, 1 from 10.0.0.9", or "".
    std::string text() const;

private:
    static constexpr size_t most_places = 64;
    std::map<std::string, int64_t> places_;
    int64_t all_ = 0;
};

}  // namespace orrery::wire
