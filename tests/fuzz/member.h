#pragma once
#include <charconv>
#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <string>

#include "control/wire.h"
#include "target.h"

namespace orrery::fuzz {

inline JobToken token() { return {std::string(32, 's'), "job", 1}; }

/// The whole number that a text begins with, 0 where there is none.
inline int64_t number_in(std::string_view text) {
    int64_t number = 0;
    std::from_chars(text.data(), text.data() + text.size(), number);
    return number;
}

inline LinkHost host_called(const std::string& name, char nonce) {
    LinkHost host;
    host.host = name;
    host.pid = 7;
    host.random = [nonce](size_t bytes) { return std::string(bytes, nonce); };
    host.process = [](int64_t) { return std::string("runs"); };
    return host;
}

template <class T>
std::string raw(const T& value) {
    return {reinterpret_cast<const char*>(&value), sizeof value};
}

/// A rendezvous' service without I/O, on host n1, whose nonces are all alike.
struct Service {
    ServeOptions options;
    std::unique_ptr<Membership> membership;
    LinkTime now{1};
    std::map<uint64_t, std::string> said;  ///< by connection: what nobody has taken yet
    std::map<uint64_t, bool> closed;       ///< connections that it knows, and whether it has closed them

    Service() {
        options.world = 4;
        options.per_host = 2;
        options.token = token();
        options.seen = [](const std::string& position) { return "'" + position + "'"; };
        options.explain = [](int64_t late, const std::vector<ServeOptions::Standing>& all) {
            return Loss{.cause = Cause::hang,
                        .text = std::to_string(late) + " is late, of " + std::to_string(all.size())};
        };
        membership = std::make_unique<Membership>(options, host_called("n1", 'r'));
    }

    void open(uint64_t connection, const std::string& from) {
        closed[connection] = false;
        membership->opened(connection, from, now);
        hear();
    }
    void send(uint64_t connection, std::string_view bytes) {
        if (!closed.at(connection)) membership->received(connection, bytes, now);
        hear();
    }
    void close(uint64_t connection) {
        if (!closed.at(connection)) membership->closed(connection, now);
        closed.at(connection) = true;
        hear();
    }
    void pass(std::chrono::milliseconds time) {
        now += time;
        if (membership->due() <= now) membership->tick(now);
        hear();
    }
    void hear() {
        for (const LinkAction& action : membership->actions()) {
            heard_ += action.bytes.size();
            said[action.connection] += action.bytes;
            if (action.close) closed[action.connection] = true;
        }
        require(heard_ < (size_t{64} << 20), "answers are bounded");
    }
    std::string take(uint64_t connection) { return std::exchange(said[connection], {}); }

private:
    size_t heard_ = 0;
};

inline wire::Nonce nonce_of(char filled) {
    wire::Nonce nonce;
    nonce.fill(filled);
    return nonce;
}

inline wire::Hello good_hello() {
    wire::Hello hello{};
    std::memcpy(hello.magic, wire::magic, 8);
    hello.generation = 1;
    hello.rank = 2;
    hello.pid = 99;
    hello.world = 4;
    std::strcpy(hello.host, "n2");
    hello.nonce = nonce_of('m');
    return hello;
}

}  // namespace orrery::fuzz
