// The promises of every RendezvousBackend and of the services and members that it makes.
#include "orrery/rendezvous.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <future>
#include <thread>

#include "suites/chosen.h"

using namespace orrery;
using namespace std::chrono_literals;
using Catch::Matchers::Contains;
using Clock = std::chrono::steady_clock;

namespace {

/// A backend, and the jobs that meet by it.
struct Suite {
    std::string name = GENERATE(from_range(suites::usable("rendezvous")));
    std::unique_ptr<RendezvousBackend> backend = made(name);

    Suite() { UNSCOPED_INFO(name); }
    static std::unique_ptr<RendezvousBackend> made(const std::string& name) {
        Config config = suites::settings("rendezvous", name);
        auto backend = suites::loaded("rendezvous", name).rendezvous(name, {})(config);
        config.reject_unused();
        return backend;
    }
    std::unique_ptr<RendezvousService> serve(const ServeOptions& options) const { return backend->serve(options); }
    std::unique_ptr<RendezvousService> serve(int64_t world) const { return serve(options_for(world)); }
    std::unique_ptr<Member> join(const JoinOptions& options) const { return backend->join(options); }

    static ServeOptions options_for(int64_t world) {
        ServeOptions options;
        options.world = world;
        options.token = {"secret", "test", 3};
        return options;
    }
};

JoinOptions place(const RendezvousService& server, int64_t rank) {
    JoinOptions options;
    options.port = server.port();
    options.rank = rank;
    options.token = {"secret", "test", 3};
    options.timeout = 20s;
    return options;
}

/// A process that joins as rank 1, says so under the key "up", and stays.
pid_t rank_1(const Suite& suite, const RendezvousService& server) {
    const pid_t child = fork();
    if (child != 0) return child;
    const auto r = suite.join(place(server, 1));
    r->set("up", "1");
    std::this_thread::sleep_for(60s);
    _exit(0);
}

/// Waits until somebody is lost, at most `limit`; returns what was seen.
std::string wait_lost(const Rendezvous& rendezvous, std::chrono::milliseconds limit) {
    const auto until = Clock::now() + limit;
    while (rendezvous.lost().empty() && Clock::now() < until) std::this_thread::sleep_for(5ms);
    return rendezvous.lost().shown();
}

}  // namespace

TEST_CASE("ranks meet, and find the keys of each other") {
    const Suite suite;
    const auto server = suite.serve(3);
    std::vector<std::future<std::string>> ranks;
    for (int rank = 0; rank < 3; ++rank) {
        ranks.push_back(std::async(std::launch::async, [&, rank] {
            const auto r = suite.join(place(*server, rank));
            r->set("value/" + std::to_string(rank), std::string(1000, static_cast<char>('a' + rank)));
            r->add("count", rank + 1);
            const std::string next = r->get("value/" + std::to_string((rank + 1) % 3), 5s);
            r->add("done", 1);
            while (r->get("done", 5s) != "3") std::this_thread::sleep_for(1ms);
            r->leave();
            return next.substr(0, 1) + r->get("count", 5s) + r->lost().shown();
        }));
    }
    CHECK(ranks[0].get() == "b6");
    CHECK(ranks[1].get() == "c6");
    CHECK(ranks[2].get() == "a6");
}

TEST_CASE("a wait for a key names it and who has not joined") {
    const Suite suite;
    const auto server = suite.serve(4);
    const auto r = suite.join(place(*server, 2));
    CHECK_THROWS_WITH(r->get("dp/0/1", 50ms), Contains("dp/0/1") && Contains("3 of 4 ranks have not joined: 0, 1, 3"));
    CHECK(r->absent() == "3 of 4 ranks have not joined: 0, 1, 3");
    CHECK_FALSE(r->look("dp/0/1", 10ms));
    const std::string all_bytes("\0\n\xff", 3);
    r->set("dp/0/1", all_bytes);
    CHECK(r->get("dp/0/1", 5s) == all_bytes);
    CHECK(r->look("dp/0/1", 5s) == all_bytes);
    CHECK(r->add("count", 3) == 3);
    CHECK(r->add("count", -5) == -2);
    r->erase("dp/0/1");
    CHECK_FALSE(r->look("dp/0/1", 10ms));
    CHECK_FALSE(server->joined(0));
    CHECK(server->joined(2));
    CHECK(r->lost().empty());
    CHECK_FALSE(server->loss());
}

TEST_CASE("a rank that dies is named to all") {
    const Suite suite;
    const auto server = suite.serve(2);
    const pid_t child = rank_1(suite, *server);
    const auto r = suite.join(place(*server, 0));
    r->get("up", 5s);
    CHECK(r->lost().empty());
    kill(child, SIGKILL);
    CHECK_THROWS_WITH(r->get("never", 60s), Contains("rank 1 (pid " + std::to_string(child)) && Contains("died"));
    CHECK_THAT(r->lost().shown(), Contains("rank 1"));
    waitpid(child, nullptr, 0);
}

TEST_CASE("a stopped rank is named with its state") {
    const Suite suite;
    auto options = Suite::options_for(2);
    options.silence = 800ms;
    const auto server = suite.serve(options);
    const pid_t child = rank_1(suite, *server);
    const auto r = suite.join(place(*server, 0));
    r->get("up", 5s);
    kill(child, SIGSTOP);
    CHECK_THAT(wait_lost(*r, 20s), Contains("rank 1") && Contains("silent") && Contains("stopped (SIGSTOP)"));
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
}

TEST_CASE("leaving is no loss, failing and going away are") {
    const Suite suite;
    const auto server = suite.serve(3);
    const auto r = suite.join(place(*server, 0));
    {
        const auto other = suite.join(place(*server, 1));
        other->leave();
    }
    CHECK(wait_lost(*r, 300ms).empty());
    SECTION("fail") {
        const auto other = suite.join(place(*server, 2));
        other->fail({.cause = Cause::mistake, .code = 2, .text = "no space left on the disk"});
        CHECK_THAT(wait_lost(*r, 20s), Contains("rank 2") && Contains("failed: no space left on the disk"));
        for (const Loss& loss : {r->loss(), server->loss()})  // as it was told
            CHECK((loss.cause == Cause::mistake && loss.code == 2 && loss.rank == 2 && loss.node == -1));
    }
    SECTION("go away") {
        { const auto other = suite.join(place(*server, 2)); }
        CHECK_THAT(wait_lost(*r, 20s), Contains("rank 2") && Contains("died"));
    }
}

TEST_CASE("the end of the server is orderly, its death is not") {
    const Suite suite;
    int port[2];
    REQUIRE(pipe(port) == 0);
    const pid_t child = fork();
    if (child == 0) {
        auto options = Suite::options_for(2);
        options.home = 0;
        const auto server = suite.serve(options);
        const int number = server->port();
        if (write(port[1], &number, sizeof number) != sizeof number) _exit(1);
        std::this_thread::sleep_for(60s);
        _exit(0);
    }
    JoinOptions options;
    REQUIRE(read(port[0], &options.port, sizeof options.port) == sizeof options.port);
    options.rank = 1;
    options.token = {"secret", "test", 3};
    {
        const auto r = suite.join(options);
        kill(child, SIGKILL);
        CHECK_THAT(wait_lost(*r, 20s), Contains("rank 0, which holds the rendezvous") && Contains("died"));
    }
    waitpid(child, nullptr, 0);
    close(port[0]);
    close(port[1]);

    auto brief = Suite::options_for(2);
    brief.linger = 50ms;
    auto server = suite.serve(brief);
    const auto r = suite.join(place(*server, 1));
    server.reset();
    CHECK(wait_lost(*r, 200ms).empty());
    CHECK_THROWS_WITH(r->get("x", 1s), Contains("closed the store"));
}

TEST_CASE("who lacks the token, the generation or a free rank is refused") {
    const Suite suite;
    const auto server = suite.serve(2);
    auto options = place(*server, 1);
    options.token.secret = "guess";
    CHECK_THROWS_WITH(suite.join(options), Contains("token does not match"));
    options = place(*server, 1);
    options.token.job = "other";
    CHECK_THROWS_WITH(suite.join(options), Contains("token does not match"));
    options = place(*server, 1);
    options.token.generation = 2;
    CHECK_THROWS_WITH(suite.join(options), Contains("of generation 2, which has ended"));
    options = place(*server, 7);
    CHECK_THROWS_WITH(suite.join(options), Contains("no such rank"));
    const auto first = suite.join(place(*server, 1));
    const std::string holder = "another process already is rank 1: process " + std::to_string(getpid()) + " on host";
    CHECK_THROWS_WITH(suite.join(place(*server, 1)), Contains(holder) && Contains("joined 0 s ago"));
    options = place(*server, 0);
    options.token.launchers = true;
    CHECK_THROWS_WITH(suite.join(options), Contains("was started without --restarts, this process with"));
    options = place(*server, 0);
    options.token.run = "of another start";
    CHECK_THROWS_WITH(suite.join(options), Contains("belongs to an earlier start of the job"));
    options.token.run = first->run();
    const auto zero = suite.join(options);
    CHECK(zero->run() == first->run());
    CHECK(first->lost().empty());
}

TEST_CASE("who has been a rank or a launcher stays the only one, and the only one whose end counts") {
    const Suite suite;
    auto serving = Suite::options_for(2);
    serving.per_host = 1;
    const auto server = suite.serve(serving);
    const auto called = [&](int64_t rank, const std::string& nonce) {
        auto options = place(*server, rank);
        options.nonce = nonce;
        return options;
    };
    const auto r = suite.join(called(0, "rank-0"));
    auto launcher = suite.join(called(-2, "launcher"));
    {
        const auto rank = suite.join(called(1, "rank-1"));
        CHECK_THROWS_WITH(suite.join(called(1, "another")), Contains("another process already is rank 1"));
        rank->leave();
    }
    CHECK_THROWS_WITH(suite.join(called(1, "another")), Contains("another process already is rank 1"));
    CHECK_THROWS_WITH(suite.join(called(-2, "another")), Contains("another process already is the launcher of node 1"));
    CHECK_THROWS_WITH(suite.join(called(-3, "third")), Contains("no such rank or node"));
    const auto again = suite.join(called(1, "rank-1"));  // a later session of the same process
    Loss how{.cause = Cause::process, .rank = 1, .pid = getpid(), .nonce = "another", .text = "(pid 42) was killed"};
    CHECK_FALSE(server->gone(how));
    launcher->gone(how);
    how.nonce = "rank-1";
    how.pid = 1;
    launcher->gone(how);
    how.pid = getpid();
    r->gone(how);  // no launcher
    CHECK(wait_lost(*r, 300ms).empty());
    SECTION("the launcher of that very process") {
        launcher->gone(how);
        CHECK_THAT(wait_lost(*r, 20s), Contains("rank 1 on host") && Contains("(pid 42) was killed"));
    }
    SECTION("a launcher that has left leaves no place to another") {
        launcher->leave();
        launcher.reset();
        CHECK_THROWS_WITH(suite.join(called(-2, "another")),
                          Contains("another process already is the launcher of node 1"));
        CHECK(wait_lost(*r, 100ms).empty());
    }
}

TEST_CASE("a launcher that left makes place where launchers meet; one that is there does not") {
    const Suite suite;
    auto serving = Suite::options_for(2);
    serving.token.launchers = true;
    const auto server = suite.serve(serving);
    const auto called = [&](int64_t node, const std::string& nonce) {
        auto options = place(*server, node);
        options.token.launchers = true;
        options.nonce = nonce;
        return options;
    };
    const auto zero = suite.join(called(0, "zero"));
    auto one = suite.join(called(1, "one"));
    CHECK_THROWS_WITH(suite.join(called(1, "two")), Contains("another process already is the launcher of node 1"));
    one->leave();
    one.reset();
    one = suite.join(called(1, "two"));
    one.reset();
    CHECK_THAT(wait_lost(*zero, 5s), Contains("the launcher of node 1 (pid") && Contains("died"));
    CHECK(zero->loss().node == 1);
    CHECK(zero->loss().cause == Cause::process);
}

TEST_CASE("who was refused is told to those who wait") {
    const Suite suite;
    const auto server = suite.serve(3);
    const auto r = suite.join(place(*server, 0));
    auto options = place(*server, 1);
    options.token.secret = "guess";
    CHECK_THROWS_WITH(suite.join(options), Contains("token does not match"));
    CHECK_THROWS_WITH(r->get("x", 10ms),
                      Contains("2 of 3 ranks have not joined: 1, 2; 2 connections with another token "
                               "or job were refused: 2 from "));
    CHECK(r->lost().empty());
}

TEST_CASE("a job of another shape is refused, and what launchers tell ends those who wait") {
    const Suite suite;
    auto serving = Suite::options_for(4);
    serving.per_host = 2;
    const auto server = suite.serve(serving);
    const auto r = suite.join(place(*server, 0));
    CHECK_FALSE(r->get("address/0", 5s).empty());
    auto options = place(*server, 1);
    SECTION("ranks of each host") {
        options.world = 4;
        options.per_host = 1;
        CHECK_THROWS_WITH(
            suite.join(options),
            Contains("the running job has 4 ranks, 2 on each host, this process expects 4 ranks, 1 on each host") &&
                Contains("--nodes"));
        CHECK(wait_lost(*r, 100ms).empty());  // it has not joined
    }
    SECTION("ranks in all") {
        options.world = 8;
        options.per_host = 2;
        CHECK_THROWS_WITH(suite.join(options), Contains("this process expects 8 ranks"));
        CHECK(wait_lost(*r, 100ms).empty());
    }
    SECTION("the launcher that serves") {
        CHECK(server->gone(
            {.cause = Cause::process, .rank = 0, .pid = getpid(), .text = "(pid 42) was killed by signal 9"}));
        CHECK_THAT(wait_lost(*r, 20s), Contains("rank 0 (pid 42) was killed by signal 9") && !Contains("before"));
    }
    SECTION("of a rank that has not come") {
        CHECK_FALSE(
            server->gone({.cause = Cause::process, .rank = 3, .pid = 42, .text = "(pid 42) was killed by signal 9"}));
        CHECK(wait_lost(*r, 20s) == "rank 3 (pid 42) was killed by signal 9 before it joined");
        const auto late = suite.join(place(*server, 1));  // who comes later is told, too
        CHECK_THAT(wait_lost(*late, 20s), Contains("rank 3"));
    }
    SECTION("the launcher of another host") {
        options.rank = -2;
        const auto launcher = suite.join(options);
        launcher->gone({.cause = Cause::process, .rank = 3, .pid = 42, .text = "(pid 42) was killed by signal 9"});
        CHECK_THAT(wait_lost(*r, 20s),
                   Contains("rank 3 on host") && Contains("(pid 42) was killed by signal 9 before"));
    }
    SECTION("a launcher whose ranks never start") {
        options.rank = -2;
        const auto launcher = suite.join(options);
        launcher->fail({.cause = Cause::mistake, .code = 2, .text = "no data"});
        CHECK_THAT(wait_lost(*r, 20s), Contains("the launcher of node 1 (pid") && Contains("failed: no data"));
        CHECK((r->loss().cause == Cause::mistake && r->loss().code == 2 && r->loss().node == 1));
    }
}

TEST_CASE("a port in use, and one where no service is, are errors that say so") {
    const Suite suite;
    const auto server = suite.serve(1);
    auto options = Suite::options_for(1);
    options.port = server->port();
    CHECK_THROWS_WITH(suite.serve(options), Contains(std::to_string(server->port())) && Contains("is in use"));
    JoinOptions unserved;
    unserved.port = 1;
    unserved.timeout = 200ms;
    try {
        suite.join(unserved);
        FAIL("it joined where no service is");
    } catch (const Error& error) {
        CHECK(error.fault() == Fault::peer);
        CHECK_THAT(error.what(), Contains("cannot reach the rendezvous"));
    }
    unserved.timeout = 600s;
    unserved.give_up = [] { return true; };
    CHECK_THROWS_AS(suite.join(unserved), Error);
}

TEST_CASE("the rank that serves may end first without failing the others") {
    const Suite suite;
    auto server = suite.serve(2);
    const auto first = suite.join(place(*server, 0)), second = suite.join(place(*server, 1));
    first->set("leave/0", "");
    first->leave();
    std::thread ends([&] { server.reset(); });
    std::this_thread::sleep_for(200ms);  // the second is late: it asks while the server is being destroyed
    std::string problem;
    try {
        second->set("leave/1", "");
        second->get("leave/0", 20s);
        second->leave();
    } catch (const Error& error) {
        problem = error.what();
    }
    ends.join();
    CHECK(problem.empty());
}

TEST_CASE("a value over the largest frame is refused before it is sent") {
    const Suite suite;
    const auto server = suite.serve(1);
    const auto r = suite.join(place(*server, 0));
    CHECK_THROWS_WITH(r->set("big", std::string(2 << 20, 'x')), Contains("too large"));
}

TEST_CASE("who joins before the service is there waits for it") {
    const Suite suite;
    auto brief = Suite::options_for(2);
    brief.linger = 0ms;
    auto options = place(*suite.serve(brief), 1);  // a port that is free again
    std::atomic<int> asked{0};
    options.timeout = 60s;
    options.give_up = [&] { return ++asked < 0; };
    auto early = std::async(std::launch::async, [&] { return suite.join(options); });
    while (asked == 0 && early.wait_for(1ms) != std::future_status::ready) {
    }
    brief.port = options.port;
    const auto server = suite.serve(brief);
    CHECK(server->port() == options.port);
    early.get()->set("early", "yes");
    CHECK(suite.join(place(*server, 0))->get("early", 20s) == "yes");
}

TEST_CASE("a wait of one thread holds up no other of the same member") {
    const Suite suite;
    const auto server = suite.serve(1);
    const auto r = suite.join(place(*server, 0));
    auto value = std::async(std::launch::async, [&] { return r->get("late", 60s); });
    r->add("done", 1);
    CHECK(r->get("done", 20s) == "1");
    r->set("late", "came");
    CHECK(value.get() == "came");
}

TEST_CASE("positions reach the service, and one that is late has the wait explained to all") {
    const Suite suite;
    auto options = Suite::options_for(2);
    options.explain = [](int64_t late, const std::vector<ServeOptions::Standing>& all) {
        std::string text = "rank " + std::to_string(late) + " waits";
        for (const auto& one : all) text += ", rank " + std::to_string(one.rank) + " is at " + one.position;
        return Loss{.cause = Cause::mistake, .rank = 0, .text = text};
    };
    const auto server = suite.serve(options);
    const auto zero = suite.join(place(*server, 0)), one = suite.join(place(*server, 1));
    std::atomic<int> asked{0};
    zero->tell_position([&] { return ++asked, std::string("step 7"); });
    // Once it is asked for the third time the first is on its way for a heartbeat's length.
    for (const auto until = Clock::now() + 20s; asked < 3 && Clock::now() < until;) std::this_thread::sleep_for(1ms);
    std::this_thread::sleep_for(300ms);
    one->tell_position([] { return std::string("late step 9"); });
    CHECK_THAT(wait_lost(*zero, 20s), Contains("rank 1 waits") && Contains("is at step 7,") && Contains("step 9"));
    CHECK_THAT(wait_lost(*one, 20s), Contains("rank 1 waits"));
    zero->tell_position({});
    one->tell_position({});
}
