#pragma once
#include <chrono>
#include <cstring>
#include <memory>
#include <string>

#include "control/wire.h"
#include "target.h"

namespace orrery::fuzz {

inline JobToken token() { return {std::string(32, 's'), "job", 1}; }

/// A rendezvous' service without I/O, whose nonces are all alike.
struct Service {
    LinkHost here;
    ServeOptions options;
    std::unique_ptr<Membership> membership;
    LinkTime now{1};
    std::string said;  ///< to connection 1

    Service() {
        here.host = "n1";
        here.pid = 7;
        here.random = [](size_t bytes) { return std::string(bytes, 'r'); };
        here.process = [](int64_t) { return std::string("runs"); };
        options.world = 4;
        options.token = token();
        membership = std::make_unique<Membership>(options, here);
        membership->opened(1, "10.0.0.1", now);
        hear();
    }

    void send(std::string_view bytes) {
        membership->received(1, bytes, now);
        hear();
        now += std::chrono::milliseconds(1);
        if (membership->due() <= now) membership->tick(now);
        hear();
    }

    void hear() {
        for (const LinkAction& action : membership->actions())
            if (action.connection == 1) said += action.bytes;
        require(said.size() < (size_t{16} << 20), "an answer is bounded");
    }

    wire::Nonce nonce() const {
        wire::Challenge challenge;
        require(said.size() >= sizeof challenge, "a stranger is challenged");
        std::memcpy(&challenge, said.data(), sizeof challenge);
        return challenge.nonce;
    }
};

inline wire::Hello good_hello() {
    wire::Hello hello{};
    std::memcpy(hello.magic, wire::magic, 8);
    hello.generation = 1;
    hello.rank = 2;
    hello.pid = 99;
    hello.world = 4;
    std::strcpy(hello.host, "n2");
    hello.nonce.fill('m');
    return hello;
}

inline std::string bytes_of(const wire::Hello& hello) { return {reinterpret_cast<const char*>(&hello), sizeof hello}; }

/// Rank 2 of such a job, which has the token.
struct ProvenMember : Service {
    wire::Hello hello = good_hello();
    std::unique_ptr<wire::Seal> sealed;

    ProvenMember() {
        hello.proof = wire::prove(options.token, hello, nonce());
        sealed = std::make_unique<wire::Seal>(options.token, wire::End::member, nonce(), hello.nonce);
        send(bytes_of(hello));
    }
    bool joined() const { return membership->joined(2); }
    std::string seal(const wire::Frame& frame) { return sealed->seal(frame); }
};

}  // namespace orrery::fuzz
