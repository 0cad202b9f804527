// Hellos: control/strangers and membership. An input is a byte, whether its proof is made good, and what a stranger
// sends.
#include "member.h"
#include "orrery/error.h"

namespace orrery::fuzz {
namespace {

void run(std::string_view input) {
    if (input.empty()) return;
    const bool proven = input[0] & 1;
    std::string bytes(input.substr(1));
    Service service;
    if (proven && bytes.size() >= sizeof(wire::Hello)) {
        wire::Hello hello;
        std::memcpy(&hello, bytes.data(), sizeof hello);
        std::memcpy(hello.magic, wire::magic, 8);
        hello.proof = wire::prove(service.options.token, hello, service.nonce());
        std::memcpy(bytes.data(), &hello, sizeof hello);
    }
    const size_t first = bytes.size() / 2;  // in two parts, as a network may cut it
    service.send(std::string_view(bytes).substr(0, first));
    service.send(std::string_view(bytes).substr(first));
    if (!proven)
        for (int64_t rank = 0; rank < service.options.world; ++rank)
            require(!service.membership->joined(rank), "nobody joins without the token");
    service.now += std::chrono::seconds(2);
    service.membership->tick(service.now);
    service.hear();
}

std::vector<std::string> seeds() {
    std::vector<std::string> all = {"", std::string(1, '\1'), "GET / HTTP/1.1\r\nHost: n1\r\n\r\n"};
    for (const char proven : {'\0', '\1'}) {
        wire::Hello hello = good_hello();
        all.push_back(proven + bytes_of(hello));
        all.push_back(proven + bytes_of(hello) + "more");
        for (const int64_t number : {int64_t{-1}, int64_t{4}, INT64_MAX, INT64_MIN}) {
            hello = good_hello();
            hello.rank = number;
            all.push_back(proven + bytes_of(hello));
            hello = good_hello();
            hello.generation = hello.world = hello.per_host = hello.pid = number;
            all.push_back(proven + bytes_of(hello));
        }
        std::memset(hello.host, 'h', sizeof hello.host);  // without an end
        all.push_back(proven + bytes_of(hello));
    }
    return all;
}

}  // namespace

Target hello_target() { return {"hello", run, seeds}; }

}  // namespace orrery::fuzz
