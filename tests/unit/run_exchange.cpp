#include "run/control/exchange.h"

#include <catch2/catch.hpp>
#include <functional>
#include <latch>
#include <mutex>
#include <thread>

#include "meeting.h"
#include "orrery/error.h"
#include "ranks.h"

using namespace orrery;
using namespace std::chrono_literals;
using Catch::Matchers::Contains;

namespace {

/// Two ranks of one job, each a thread with a connection of its own; what each threw, "" when nothing.
std::vector<std::string> on_two(const std::function<void(int64_t, Rendezvous&)>& work) {
    ServeOptions serving;
    serving.world = 2;
    serving.token = {"secret", "test", 0};
    const auto server = test::tcp().serve(serving);
    std::vector<std::string> problems(2);
    std::vector<std::thread> threads;
    for (int64_t rank = 0; rank < 2; ++rank)
        threads.emplace_back([&, rank] {
            JoinOptions options;
            options.port = server->port();
            options.rank = rank;
            options.token = serving.token;
            const auto rendezvous = test::tcp().join(options);
            try {
                work(rank, *rendezvous);
                rendezvous->leave();
            } catch (const std::exception& problem) {
                problems[static_cast<size_t>(rank)] = problem.what();
                rendezvous->fail({.cause = Cause::error, .text = problem.what()});
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

TEST_CASE("a rank that works on files may take longer than the job's timeout", "[exchange][slow]") {
    const auto late = [](WaitLimit limit) {
        return on_two([limit](int64_t rank, Rendezvous& r) {
            Exchange exchange(r, "0", rank, 2, 200ms);
            if (rank == 1) std::this_thread::sleep_for(900ms);
            must(exchange.all("written", rank == 0 ? "a" : "b", limit) == std::vector<std::string>{"a", "b"},
                 "other texts");
        });
    };
    CHECK(late(WaitLimit::files) == all_well);
    CHECK_THAT(late(WaitLimit::step)[0],
               Contains("rank 0: timed out: rank 1 has not reached 'written'") && Contains("200 ms"));
}

TEST_CASE("a rank that is lost ends a patient wait at once", "[exchange]") {
    const auto start = std::chrono::steady_clock::now();
    const auto problems = on_two([](int64_t rank, Rendezvous& r) {
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
    CHECK(on_two([&](int64_t rank, Rendezvous& r) {
              Exchange exchange(r, "0", rank, 2, 5s);
              const std::string mine = rank == 0 ? "small" : big;
              const auto first = exchange.to_first("report", mine, WaitLimit::files);
              must(first == (rank == 0 ? std::vector<std::string>{"small", big} : std::vector<std::string>{}), "first");
              must(exchange.all("again", mine, WaitLimit::step) == std::vector<std::string>{"small", big}, "all");
          }) == all_well);
    const auto problems = on_two([](int64_t rank, Rendezvous& r) {
        Exchange exchange(r, "0", rank, 2, 5s);
        if (rank == 1) exchange.to_first("report", std::string(65 << 20, 'x'), WaitLimit::files);
        if (rank == 0) exchange.all("report", "", WaitLimit::files);
    });
    CHECK_THAT(problems[1], Contains("68157440 bytes"));
}

TEST_CASE("the store forgets texts that everyone has read", "[exchange]") {
    CHECK(on_two([](int64_t rank, Rendezvous& r) {
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
    CHECK(on_two([](int64_t rank, Rendezvous& r) {
              for (const std::string name : {"0", "1"}) {
                  Exchange exchange(r, name, rank, 2, 5s);
                  if (rank == 1) std::this_thread::sleep_for(50ms);  // rank 0 would find a stale text
                  const auto all = exchange.all("plan", name + std::to_string(rank), WaitLimit::step);
                  must(all == std::vector<std::string>{name + "0", name + "1"}, "a stale text");
              }
          }) == all_well);
}

TEST_CASE("rank 0's text comes to every rank, and goes between rounds of all", "[exchange]") {
    CHECK(on_two([](int64_t rank, Rendezvous& r) {
              Exchange exchange(r, "0", rank, 2, 2000ms);
              for (const char* text : {"go on", "stop"}) {
                  must(exchange.from_first("verdict", rank == 0 ? text : "nobody reads it", WaitLimit::step) == text,
                       "another text than rank 0's");
                  must(exchange.all("round", "x", WaitLimit::step).size() == 2, "not two texts");
              }
          }) == all_well);
}

namespace {

/// Counts one rank's messages to the store.
class Counted final : public Rendezvous {
public:
    explicit Counted(Rendezvous& store) : store_(store) {}
    void set(std::string_view key, std::string_view value) override {
        ++messages;
        most = std::max(most, value.size());
        store_.set(key, value);
    }
    std::string get(std::string_view key, std::chrono::milliseconds timeout) override {
        ++messages;
        return store_.get(key, timeout);
    }
    std::optional<std::string> look(std::string_view key, std::chrono::milliseconds timeout) override {
        ++messages;
        return store_.look(key, timeout);
    }
    void erase(std::string_view key) override {
        ++messages;
        store_.erase(key);
    }
    int64_t add(std::string_view key, int64_t amount) override { return store_.add(key, amount); }
    Message lost() const override { return store_.lost(); }

    int64_t messages = 0;
    size_t most = 0;

private:
    Rendezvous& store_;
};

struct Cost {
    int64_t messages = 0;  ///< of the rank that has most
    size_t bytes = 0;      ///< of the largest text
};

/// Of one round of so many ranks; `round` is called by each.
Cost cost_of(int64_t ranks, const std::function<void(Exchange&, int64_t rank)>& round) {
    Cost cost;
    std::mutex mutex;
    test::run_ranks(ranks, [&](int64_t rank, Rendezvous& store) {
        Counted counted(store);
        Exchange exchange(counted, "0", rank, ranks, 60s);
        round(exchange, rank);
        const std::lock_guard lock(mutex);
        cost.messages = std::max(cost.messages, counted.messages);
        cost.bytes = std::max(cost.bytes, counted.most);
    });
    return cost;
}

}  // namespace

TEST_CASE("a round costs a rank so few messages with 256 and with 1,024 ranks", "[exchange][slow]") {
    for (const int64_t ranks : {9, 256, 1024}) {
        INFO(ranks);
        const auto text = [](int64_t rank) { return "text of rank " + std::to_string(rank); };
        const auto whole = [&](const std::vector<std::string>& texts) {
            must(static_cast<int64_t>(texts.size()) == ranks, "not a text of each");
            for (int64_t rank = 0; rank < ranks; ++rank)
                must(texts[static_cast<size_t>(rank)] == text(rank), "another text");
        };
        // Up: says that it is here, reads four, gives one.
        CHECK(cost_of(ranks, [&](Exchange& exchange, int64_t rank) {
                  const auto texts = exchange.to_first("report", text(rank), WaitLimit::step);
                  if (rank == 0) whole(texts);
              }).messages <= 6);
        CHECK(cost_of(ranks, [&](Exchange& exchange, int64_t rank) {
                  must(exchange.from_first("verdict", rank == 0 ? "go" : "", WaitLimit::step) == "go", "no verdict");
              }).messages == 1);
        // Up and down, and the erasing of the round before.
        CHECK(cost_of(ranks, [&](Exchange& exchange, int64_t rank) {
                  whole(exchange.all("all", text(rank), WaitLimit::step));
              }).messages <= 7);
        // Digests alone, however long the text is.
        const std::string settings(100'000, 's');
        const Cost same = cost_of(ranks, [&](Exchange& exchange, int64_t) {
            must(!exchange.compare("settings", settings, settings, WaitLimit::step), "a difference");
        });
        CHECK(same.messages <= 7);
        CHECK(same.bytes < 128);
        // Where one differs its text and rank 0's go to all.
        CHECK(cost_of(ranks, [&](Exchange& exchange, int64_t rank) {
                  const std::string mine = rank == ranks - 2 ? "other" : settings;
                  const auto found = exchange.compare("settings", mine, mine, WaitLimit::step);
                  must(found && found->rank == ranks - 2 && found->first == settings && found->other == "other",
                       "another difference");
              }).messages <= 10);
    }
}

TEST_CASE("a rank that does not come is named by all who wait, wherever it is in the tree", "[exchange][slow]") {
    constexpr int64_t ranks = 30;
    for (const int64_t late : {0, 1, 5, 7, 29}) {
        std::vector<std::string> problems(ranks);
        std::latch here(ranks - 1), told(ranks - 1);  // the others are together, however slow this machine starts them
        test::run_ranks(ranks, [&](int64_t rank, Rendezvous& store) {
            Exchange exchange(store, "0", rank, ranks, 2s);
            if (rank == late) return told.wait();
            here.arrive_and_wait();
            try {
                exchange.all("plan", "text", WaitLimit::step);
            } catch (const std::exception& error) {
                problems[static_cast<size_t>(rank)] = error.what();
            }
            told.count_down();
        });
        const std::string named = "rank " + std::to_string(late) + " has not reached 'plan' within 2000 ms";
        for (int64_t rank = 0; rank < ranks; ++rank)
            if (rank != late) CHECK_THAT(problems[static_cast<size_t>(rank)], Contains(named));
    }
}

TEST_CASE("how a rank ends says whom it has heard of, or who did not come", "[exchange]") {
    const Job job{.rank = 0, .ranks = 2};
    LocalRendezvous store;
    Exchange exchange(store, "0", 0, 2, 10ms);
    try {
        exchange.all("plan", "", WaitLimit::step);
        FAIL("rank 1 is not there");
    } catch (const Error& error) {
        const Loss missed = end_by(job, error, "setup");
        CHECK((missed.cause == Cause::hang && missed.rank == 1 && missed.hearsay && missed.site == "setup"));
        const Loss heard = end_by(job, error, "setup", {.cause = Cause::process, .rank = 3, .site = "connection"});
        CHECK((heard.cause == Cause::hang && heard.rank == 3 && heard.hearsay && heard.site == "connection"));
    }
    const Loss own = end_by(job, Error("no such data"), "read");
    CHECK((own.cause == Cause::mistake && own.rank == 0 && !own.hearsay && own.code == 2 && own.site == "read"));
}
