#pragma once
#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "control/wire.h"

namespace orrery {

/// Connections that have not proved themselves. At most `most` are open: a newer one closes the oldest, but none before
/// it has had `least`, so that a flood cannot push out a rank that answers at once. None has longer than `longest` for
/// its hello, of which no byte more than its size is kept. Who is closed may come again.
class Strangers {
public:
    static constexpr size_t most = 64;
    static constexpr LinkTime least = std::chrono::milliseconds(20);
    static constexpr LinkTime longest = std::chrono::seconds(1);

    /// One that has sent a whole hello, not judged yet.
    struct Candidate {
        wire::Nonce nonce;  ///< of its challenge
        wire::Hello hello;
        std::string from;
        std::string more;  ///< what it has sent behind its hello
    };

    bool full(LinkTime now) const { return open_.size() >= most && now - open_.front().since < least; }
    /// When the oldest may be closed for a newer one, or has had its time; LinkTime::max() where there is none.
    LinkTime due() const;
    /// Returns those that it takes the place of, which are to be closed.
    std::vector<uint64_t> add(uint64_t connection, const wire::Nonce& nonce, const std::string& from, LinkTime now);
    bool has(uint64_t connection) const { return at_.count(connection) > 0; }
    std::optional<Candidate> received(uint64_t connection, std::string_view bytes);
    void closed(uint64_t connection);
    /// Those whose time is over; they are to be closed.
    std::vector<uint64_t> late(LinkTime now);

private:
    struct Stranger {
        uint64_t connection;
        wire::Nonce nonce;
        LinkTime since;
        std::string in, from;
    };
    std::list<Stranger> open_;  ///< the oldest first
    std::map<uint64_t, std::list<Stranger>::iterator> at_;
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

}  // namespace orrery
