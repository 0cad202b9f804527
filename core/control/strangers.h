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

/// Connections that are not authenticated yet, up to `most`. If that many are open, a new one closes the oldest, but
/// only one open for the time `least`, so that a flood cannot push out a rank that answers at once. A connection has
/// the time `longest` to send its hello, and no more bytes than a hello are stored. A closed peer may connect again.
class Strangers {
public:
    static constexpr size_t most = 64;
    static constexpr LinkTime least = std::chrono::milliseconds(20);
    static constexpr LinkTime longest = std::chrono::seconds(1);

    /// A connection that has sent a whole hello, which has not been checked yet.
    struct Candidate {
        wire::Nonce nonce;
        wire::Hello hello;
        std::string from;
        std::string more;  ///< bytes received after the hello
    };

    bool full(LinkTime now) const { return open_.size() >= most && now - open_.front().since < least; }
    /// Time at which the oldest connection may be replaced (if no more may be open) or is late; LinkTime::max(): none.
    LinkTime due() const;
    /// Adds a connection. Returns the connections that it replaces, which the caller must close.
    std::vector<uint64_t> add(uint64_t connection, const wire::Nonce& nonce, const std::string& from, LinkTime now);
    bool has(uint64_t connection) const { return at_.count(connection) > 0; }
    std::optional<Candidate> received(uint64_t connection, std::string_view bytes);
    void closed(uint64_t connection);
    /// Removes and returns connections that sent no hello in time; the caller must close them.
    std::vector<uint64_t> late(LinkTime now);

private:
    struct Stranger {
        uint64_t connection;
        wire::Nonce nonce;
        LinkTime since;
        std::string in, from;
    };
    std::list<Stranger> open_;  ///< oldest first
    std::map<uint64_t, std::list<Stranger>::iterator> at_;
};

/// Counts refused connections by address.
class Refusals {
public:
    void count(const std::string& from);
    /// Describes the refusals: "; 3 connections with another token or job were refused: 2 from 10.0.0.7, 1 from
    /// 10.0.0.9"; "" if there are none.
    std::string text() const;

private:
    static constexpr size_t most_places = 64;
    std::map<std::string, int64_t> places_;
    int64_t all_ = 0;
};

}  // namespace orrery
