#include "run/rendezvous.h"

#include <arpa/inet.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <future>
#include <thread>

#include "ranks.h"
#include "run/rendezvous_wire.h"

using namespace orrery;
using namespace std::chrono_literals;
using Catch::Matchers::Contains;
using Clock = std::chrono::steady_clock;

namespace {

RendezvousServer::Options serve(int64_t world) {
    RendezvousServer::Options options;
    options.world = world;
    options.token = {"secret", "test", 3};
    return options;
}

TcpRendezvous::Options join(const RendezvousServer& server, int64_t rank) {
    TcpRendezvous::Options options;
    options.port = server.port();
    options.rank = rank;
    options.token = {"secret", "test", 3};
    options.timeout = 5s;
    return options;
}

/// A socket connected to the server that has read its challenge.
int stranger(const RendezvousServer& server) {
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(server.port()));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    REQUIRE(connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0);
    wire::Challenge challenge;
    REQUIRE(recv(fd, &challenge, sizeof challenge, MSG_WAITALL) == sizeof challenge);
    return fd;
}

/// Waits until the text appears in lost(), at most `limit`; returns what was seen.
std::string wait_lost(const Rendezvous& rendezvous, std::chrono::milliseconds limit) {
    const auto until = Clock::now() + limit;
    while (rendezvous.lost().empty() && Clock::now() < until) std::this_thread::sleep_for(5ms);
    return rendezvous.lost();
}

}  // namespace

TEST_CASE("ranks meet through a TCP store", "[rendezvous]") {
    RendezvousServer server(serve(3));
    std::vector<std::future<std::string>> ranks;
    for (int rank = 0; rank < 3; ++rank) {
        ranks.push_back(std::async(std::launch::async, [&, rank] {
            TcpRendezvous r(join(server, rank));
            r.set("value/" + std::to_string(rank), std::string(1000, static_cast<char>('a' + rank)));
            r.add("count", rank + 1);
            const std::string next = r.get("value/" + std::to_string((rank + 1) % 3), 5s);
            r.add("done", 1);
            while (r.get("done", 5s) != "3") std::this_thread::sleep_for(1ms);
            r.leave();
            return next.substr(0, 1) + r.get("count", 5s) + r.lost();
        }));
    }
    CHECK(ranks[0].get() == "b6");
    CHECK(ranks[1].get() == "c6");
    CHECK(ranks[2].get() == "a6");
    CHECK(server.lost().empty());
}

TEST_CASE("a wait for a key names it and who has not joined", "[rendezvous]") {
    RendezvousServer server(serve(4));
    TcpRendezvous r(join(server, 2));
    const auto start = Clock::now();
    CHECK_THROWS_WITH(r.get("dp/0/1", 200ms),
                      "nobody set key 'dp/0/1' within 200 ms: 3 of 4 ranks have not joined: 0, 1, 3");
    CHECK(Clock::now() - start < 2200ms);  // T + 2 s
    r.set("dp/0/1", "here");
    CHECK(r.get("dp/0/1", 1s) == "here");
}

TEST_CASE("a rank that dies is named to all within a second", "[rendezvous]") {
    RendezvousServer server(serve(2));
    const pid_t child = fork();
    if (child == 0) {
        TcpRendezvous r(join(server, 1));
        r.set("up", "1");
        std::this_thread::sleep_for(60s);
        _exit(0);
    }
    TcpRendezvous r(join(server, 0));
    r.get("up", 5s);
    CHECK(r.lost().empty());
    kill(child, SIGKILL);
    const auto killed = Clock::now();
    CHECK_THROWS_WITH(r.get("never", 10s), Contains("rank 1 (pid " + std::to_string(child)) && Contains("died"));
    CHECK(Clock::now() - killed < 3s);  // 1 s is promised, a busy machine takes its time; the wait itself is 10 s
    CHECK_THAT(server.lost(), Contains("rank 1"));
    waitpid(child, nullptr, 0);
}

TEST_CASE("a stopped rank is named with its state", "[rendezvous]") {
    auto options = serve(2);
    options.silence = 800ms;
    RendezvousServer server(options);
    const pid_t child = fork();
    if (child == 0) {
        TcpRendezvous r(join(server, 1));
        r.set("up", "1");
        std::this_thread::sleep_for(60s);
        _exit(0);
    }
    TcpRendezvous r(join(server, 0));
    r.get("up", 5s);
    kill(child, SIGSTOP);
    CHECK_THAT(wait_lost(r, 3s), Contains("rank 1") && Contains("silent") && Contains("stopped (SIGSTOP)"));
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
}

TEST_CASE("leaving is no loss, failing and going away are", "[rendezvous]") {
    RendezvousServer server(serve(3));
    TcpRendezvous r(join(server, 0));
    {
        TcpRendezvous other(join(server, 1));
        other.leave();
    }
    CHECK(wait_lost(r, 300ms).empty());
    SECTION("fail") {
        TcpRendezvous other(join(server, 2));
        other.fail("no space left on the disk");
        CHECK_THAT(wait_lost(r, 3s), Contains("rank 2") && Contains("failed: no space left on the disk"));
    }
    SECTION("go away") {
        { TcpRendezvous other(join(server, 2)); }
        CHECK_THAT(wait_lost(r, 3s), Contains("rank 2") && Contains("died"));
    }
}

TEST_CASE("the end of the server is orderly, its death is not", "[rendezvous]") {
    int port[2];
    REQUIRE(pipe(port) == 0);
    const pid_t child = fork();
    if (child == 0) {
        auto options = serve(2);
        options.home = 0;
        RendezvousServer server(options);
        const int number = server.port();
        if (write(port[1], &number, sizeof number) != sizeof number) _exit(1);
        std::this_thread::sleep_for(60s);
        _exit(0);
    }
    TcpRendezvous::Options options;
    REQUIRE(read(port[0], &options.port, sizeof options.port) == sizeof options.port);
    options.rank = 1;
    options.token = {"secret", "test", 3};
    {
        TcpRendezvous r(options);
        kill(child, SIGKILL);
        CHECK_THAT(wait_lost(r, 3s), Contains("rank 0, which holds the rendezvous") && Contains("died"));
    }
    waitpid(child, nullptr, 0);
    close(port[0]);
    close(port[1]);

    auto brief = serve(2);
    brief.linger = 50ms;
    auto server = std::make_unique<RendezvousServer>(brief);
    TcpRendezvous r(join(*server, 1));
    server.reset();
    CHECK(wait_lost(r, 200ms).empty());
    CHECK_THROWS_WITH(r.get("x", 1s), Contains("closed the store"));
}

TEST_CASE("who lacks the token, the generation or a free rank is refused", "[rendezvous]") {
    RendezvousServer server(serve(2));
    auto options = join(server, 1);
    options.token.secret = "guess";
    CHECK_THROWS_WITH(TcpRendezvous(options), Contains("token does not match"));
    options = join(server, 1);
    options.token.job = "other";
    CHECK_THROWS_WITH(TcpRendezvous(options), Contains("token does not match"));
    options = join(server, 1);
    options.token.generation = 2;
    CHECK_THROWS_WITH(TcpRendezvous(options), Contains("generation 2 of the job is over"));
    options = join(server, 7);
    CHECK_THROWS_WITH(TcpRendezvous(options), Contains("no such rank"));
    TcpRendezvous first(join(server, 1));
    CHECK_THROWS_WITH(TcpRendezvous(join(server, 1)), Contains("another process already is that rank"));
    CHECK(first.lost().empty());
}

TEST_CASE("strangers cannot disturb the store", "[rendezvous]") {
    RendezvousServer server(serve(2));
    TcpRendezvous r(join(server, 0));
    char rest[256];
    // More than a hello of nonsense: refused after 160 bytes with one fixed-size word, then closed.
    const int noisy = stranger(server);
    const std::string noise(100'000, 'x');
    send(noisy, noise.data(), noise.size(), MSG_NOSIGNAL);
    CHECK(recv(noisy, rest, sizeof rest, MSG_WAITALL) <= static_cast<ssize_t>(sizeof(wire::Welcome)));
    close(noisy);
    // A replayed hello does not fit the new nonce.
    const int replay = stranger(server);
    wire::Hello hello{};
    std::memcpy(hello.magic, wire::magic, 8);
    hello.generation = 3;
    hello.rank = 1;
    hello.proof = wire::prove({"secret", "test", 3}, hello, wire::Nonce{});
    send(replay, &hello, sizeof hello, MSG_NOSIGNAL);
    wire::Welcome welcome{};
    REQUIRE(recv(replay, &welcome, sizeof welcome, MSG_WAITALL) == sizeof welcome);
    CHECK(welcome.status == wire::Status::wrong_token);
    close(replay);
    // Silent ones take up no more than their share.
    std::vector<int> silent;
    for (int i = 0; i < 64; ++i) silent.push_back(stranger(server));
    r.set("still", "works");
    CHECK(r.get("still", 1s) == "works");
    CHECK(r.lost().empty());
    for (const int fd : silent) close(fd);
}

TEST_CASE("a port in use is an error that says so", "[rendezvous]") {
    RendezvousServer server(serve(1));
    auto options = serve(1);
    options.port = server.port();
    CHECK_THROWS_WITH(RendezvousServer(options),
                      Contains("port " + std::to_string(server.port()) + " of 127.0.0.1 is in use"));
    TcpRendezvous::Options nobody;
    nobody.port = 1;
    nobody.timeout = 200ms;
    CHECK_THROWS_WITH(TcpRendezvous(nobody),
                      Contains("cannot reach the rendezvous at 127.0.0.1:1") && Contains("refused"));
}

TEST_CASE("the rank that serves may end first without failing the others", "[rendezvous]") {
    auto server = std::make_unique<RendezvousServer>(serve(2));
    TcpRendezvous first(join(*server, 0)), second(join(*server, 1));
    first.set("leave/0", "");
    first.leave();
    std::thread ends([&] { server.reset(); });
    std::this_thread::sleep_for(200ms);  // the second is late: it asks while the server is being destroyed
    std::string problem;
    try {
        second.set("leave/1", "");
        second.get("leave/0", 2s);
        second.leave();
    } catch (const Error& error) {
        problem = error.what();
    }
    const auto left = Clock::now();
    ends.join();
    CHECK(problem.empty());
    CHECK(Clock::now() - left < 3s);  // it does not use up its patience
}

TEST_CASE("frames are bounded and checked", "[rendezvous]") {
    std::string good = wire::encode({wire::Kind::set, 7, "key", "value"});
    std::string half = good.substr(0, good.size() - 1);
    CHECK(!wire::decode(half));
    const auto frame = wire::decode(good);
    REQUIRE(frame);
    CHECK((frame->id == 7 && frame->key == "key" && frame->value == "value" && good.empty()));
    std::string big(
        "\xff\xff\xff\x7f"
        "x",
        5),
        unknown = wire::encode({static_cast<wire::Kind>(99), 0, "", ""});
    CHECK_THROWS_AS(wire::decode(big), Error);
    CHECK_THROWS_AS(wire::decode(unknown), Error);
    std::string key = wire::encode({wire::Kind::set, 0, "key", ""});
    key[13] = 100;  // a key longer than the frame
    CHECK_THROWS_AS(wire::decode(key), Error);
    RendezvousServer server(serve(1));
    TcpRendezvous r(join(server, 0));
    CHECK_THROWS_WITH(r.set("big", std::string(2 << 20, 'x')), Contains("over the limit"));
}

TEST_CASE("threads of one process share a local store", "[rendezvous]") {
    std::vector<std::string> seen(3);
    test::run_ranks(3, [&](int64_t rank, Rendezvous& r) {
        r.set("v/" + std::to_string(rank), std::to_string(rank));
        seen[static_cast<size_t>(rank)] = r.get("v/" + std::to_string((rank + 1) % 3), 5s);
    });
    CHECK(seen == std::vector<std::string>{"1", "2", "0"});
    CHECK_THROWS_WITH(test::run_ranks(2,
                                      [&](int64_t rank, Rendezvous& r) {
                                          if (rank == 1) throw Error("boom");
                                          r.get("never", 10s);
                                      }),
                      "boom");
}
