#include "run/control/exchange.h"

#include <catch2/catch.hpp>
#include <functional>
#include <thread>

#include "orrery/error.h"

using namespace orrery;
using namespace std::chrono_literals;
using Catch::Matchers::Contains;

namespace {

/// Two ranks of one job, each a thread with a connection of its own; what each threw, "" when nothing.
std::vector<std::string> on_two(const std::function<void(int64_t, TcpRendezvous&)>& work) {
    RendezvousServer::Options serving;
    serving.world = 2;
    serving.token = {"secret", "test", 0};
    RendezvousServer server(serving);
    std::vector<std::string> problems(2);
    std::vector<std::thread> threads;
    for (int64_t rank = 0; rank < 2; ++rank)
        threads.emplace_back([&, rank] {
            TcpRendezvous::Options options;
            options.port = server.port();
            options.rank = rank;
            options.token = serving.token;
            TcpRendezvous rendezvous(options);
            try {
                work(rank, rendezvous);
                rendezvous.leave();
            } catch (const std::exception& problem) {
                problems[static_cast<size_t>(rank)] = problem.what();
                rendezvous.fail(problem.what());
            }
        });
    for (std::thread& thread : threads) thread.join();
    return problems;
}

const std::vector<std::string> all_well(2);

void must(bool good, const char* what) {
    if (!good) throw Error(what);
}

}  // namespace

TEST_CASE("a rank that works on files may take longer than the job's timeout", "[exchange]") {
    const auto late = [](WaitLimit limit) {
        return on_two([limit](int64_t rank, TcpRendezvous& r) {
            Exchange exchange(r, "0", rank, 2, 200ms);
            if (rank == 1) std::this_thread::sleep_for(900ms);
            must(exchange.all("written", rank == 0 ? "a" : "b", limit) == std::vector<std::string>{"a", "b"},
                 "other texts");
        });
    };
    CHECK(late(WaitLimit::files) == all_well);
    CHECK_THAT(late(WaitLimit::step)[0], Contains("rank 0: rank 1 has not come to 'written'") && Contains("200 ms"));
}

TEST_CASE("a rank that is lost ends a patient wait at once", "[exchange]") {
    const auto start = std::chrono::steady_clock::now();
    const auto problems = on_two([](int64_t rank, TcpRendezvous& r) {
        Exchange exchange(r, "0", rank, 2, 200ms);
        if (rank == 1) throw Error("the disk is full");
        exchange.all("written", "", WaitLimit::files);
    });
    CHECK_THAT(problems[0], Contains("rank 1") && Contains("the disk is full"));
    CHECK(std::chrono::steady_clock::now() - start < 3s);
}

TEST_CASE("texts larger than a frame of the store pass whole", "[exchange]") {
    std::string big(3 << 20, ' ');
    for (size_t i = 0; i < big.size(); ++i) big[i] = static_cast<char>('a' + i * 7 % 23);
    CHECK(on_two([&](int64_t rank, TcpRendezvous& r) {
              Exchange exchange(r, "0", rank, 2, 5s);
              const std::string mine = rank == 0 ? "small" : big;
              const auto first = exchange.to_first("report", mine, WaitLimit::files);
              must(first == (rank == 0 ? std::vector<std::string>{"small", big} : std::vector<std::string>{}), "first");
              must(exchange.all("again", mine, WaitLimit::step) == std::vector<std::string>{"small", big}, "all");
          }) == all_well);
    const auto problems = on_two([](int64_t rank, TcpRendezvous& r) {
        Exchange exchange(r, "0", rank, 2, 5s);
        if (rank == 1) exchange.to_first("report", std::string(65 << 20, 'x'), WaitLimit::files);
        if (rank == 0) exchange.all("report", "", WaitLimit::files);
    });
    CHECK_THAT(problems[1], Contains("68157440 bytes"));
}

TEST_CASE("the store forgets texts that everyone has read", "[exchange]") {
    CHECK(on_two([](int64_t rank, TcpRendezvous& r) {
              Exchange exchange(r, "0", rank, 2, 5s);
              for (int round = 0; round < 4; ++round) exchange.all("topic", std::string(1000, 'x'), WaitLimit::step);
              exchange.to_first("report", "text", WaitLimit::step);
              exchange.all("end", "", WaitLimit::step);
              exchange.all("settled", "", WaitLimit::step);
              for (const std::string round : {"0/topic", "1/topic", "2/topic", "3/topic", "4/report", "5/end"})
                  must(!r.look("exchange/0/" + round + "/" + std::to_string(rank), 20ms), "a text is left");
              must(r.look("exchange/0/6/settled/" + std::to_string(rank), 20ms).has_value(), "it went too early");
          }) == all_well);
}

TEST_CASE("a second exchange of a job does not read the first one's texts", "[exchange]") {
    CHECK(on_two([](int64_t rank, TcpRendezvous& r) {
              for (const std::string name : {"0", "1"}) {
                  Exchange exchange(r, name, rank, 2, 5s);
                  if (rank == 1) std::this_thread::sleep_for(50ms);  // rank 0 would find a stale text
                  const auto all = exchange.all("plan", name + std::to_string(rank), WaitLimit::step);
                  must(all == std::vector<std::string>{name + "0", name + "1"}, "a stale text");
              }
          }) == all_well);
}
