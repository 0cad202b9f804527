// Sends that nobody waits for, their data being copied: what becomes of them when their receiver does not come.
#include <malloc.h>
#include <signal.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <filesystem>

#include <fmt/format.h>

#include "harness.h"

using namespace orrery;
using namespace orrery::conformance;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

namespace {

constexpr int slots = 2;
const std::vector<std::string> all_well;
const std::vector<std::string> next_ops{"send", "receive", "all_reduce"};

/// Elements of each buffered send, and what comes next.
const std::vector<std::pair<int64_t, std::string>> some{{1, "send"}, {1'000'000, "receive"}, {1'000'000, "all_reduce"}};

/// With whatever carries ucx here, shared memory, and with tcp, where a connection that ends is noticed at once.
std::vector<Backend> buffering() {
    std::vector<Backend> all = with_option("slots", {int64_t{slots}, {}, false});
    for (size_t i = 0, count = all.size(); i < count; ++i) {
        if (all[i].transport != "ucx") continue;
        Backend tcp = all[i];
        tcp.options.emplace_back("transports", ConfigValue{std::string("tcp"), {}, false});
        all.push_back(tcp);
    }
    return all;
}

/// Fills every slot towards member 1, which gets the key "sent" then and receives nothing of it. The memory is the
/// sender's again at once.
void fill_slots(Participant& m, Communicator& c, int64_t count) {
    const Tensor data = m.arena.tensor(DType::f32, count);
    for (int i = 0; i < slots; ++i) {
        m.expect(c.send(data, 1, i).done(), "a buffered send waits for its receive");
        std::memset(data.data, 0xff, static_cast<size_t>(data.bytes()));
    }
    m.rendezvous.set("sent", "1");
}

/// What a step would do next; none of it can end without member 1.
void attempt(Participant& m, Communicator& c, const std::string& op) {
    const Tensor t = m.arena.tensor(DType::f32, 1000);
    if (op == "send") c.send(t, 1, slots).wait();
    if (op == "receive") c.receive(t, 1, 7).wait();
    if (op == "all_reduce") c.all_reduce(t, t, ReduceOp::sum).wait();
}

/// Nobody hangs at the end either: a communicator goes within this time, whatever was under way.
void expect_gone(Participant& m, std::unique_ptr<Communicator> c, std::chrono::milliseconds limit) {
    const auto start = Clock::now();
    c.reset();
    const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - start);
    m.expect(took < limit, fmt::format("to go took {} ms, at most {} allowed", took.count(), limit.count()));
}

enum class Members { any, processes, threads };

/// `body` in two members of every backend that copies its sends; all must end well.
void on_each(Members which, const std::string& what, const std::function<void(Participant&)>& body,
             std::chrono::milliseconds timeout) {
    const auto ucx = [](const std::vector<Backend>& all) {
        return std::any_of(all.begin(), all.end(), [](const Backend& b) { return b.transport == "ucx"; });
    };
    const std::vector<Backend> all = buffering();
    REQUIRE(ucx(all) == ucx(backends()));
    for (const Backend& backend : all) {
        if (which != Members::any && backend.processes != (which == Members::processes)) continue;
        INFO(backend << what);
        CHECK(run(backend, 2, body, timeout).failures == all_well);
    }
}

/// What this process holds: open files, threads, bytes of its heap.
struct Held {
    int64_t files = 0, threads = 0, heap = 0;

    static Held now() {
        const auto entries = [](const char* folder) {
            const std::filesystem::directory_iterator all(folder);
            return static_cast<int64_t>(std::distance(begin(all), end(all)));
        };
        const auto heap = mallinfo2();
        return {entries("/proc/self/fd"), entries("/proc/self/task"),
                static_cast<int64_t>(heap.uordblks + heap.hblkhd)};
    }
};

}  // namespace

TEST_CASE("a member killed under buffered sends is named by the next call", "[failures][buffered]") {
    const int64_t count = GENERATE(1, 1'000'000);
    const std::string op = GENERATE(from_range(next_ops));
    on_each(
        Members::processes, fmt::format(", {} elements, {}", count, op),
        [&](Participant& m) {
            auto c = m.make();
            if (m.rank == 1) {
                m.rendezvous.get("sent", 10s);
                ::kill(::getpid(), SIGKILL);
            }
            fill_slots(m, *c, count);
            expect_fault(m, 3000ms, {op, "rank 1"}, [&] { attempt(m, *c, op); });
            expect_gone(m, std::move(c), 2000ms);
        },
        30s);
}

TEST_CASE("a member stopped under buffered sends is named after the timeout", "[failures][buffered]") {
    const auto [count, op] = GENERATE(from_range(some));
    on_each(
        Members::processes, fmt::format(", {} elements, {}", count, op),
        [&, count = count, op = op](Participant& m) {
            auto c = m.make();
            if (m.rank == 1) return stop(m);
            const Stopped other(m);
            fill_slots(m, *c, count);
            expect_fault(m, 4000ms, {op, "rank 1", "stopped"}, [&] { attempt(m, *c, op); });
            expect_gone(m, std::move(c), 1200ms);  // without another timeout
        },
        1500ms);
}

TEST_CASE("a member that leaves what was buffered for it is named, and every one ends", "[failures][buffered]") {
    const auto [count, op] = GENERATE(from_range(some));
    on_each(
        Members::any, fmt::format(", {} elements, {}", count, op),
        [&, count = count, op = op](Participant& m) {
            auto c = m.make();
            if (m.rank == 1) {
                m.rendezvous.get("sent", 10s);
                expect_gone(m, std::move(c), 3000ms);
                m.rendezvous.set("left", "1");
                m.rendezvous.get("over", 20s);
                return;
            }
            fill_slots(m, *c, count);
            m.rendezvous.get("left", 10s);
            expect_fault(m, 4000ms, {op, "rank 1"}, [&] { attempt(m, *c, op); });
            expect_gone(m, std::move(c), 1200ms);
            m.rendezvous.set("over", "1");
        },
        1500ms);
}

TEST_CASE("an abort under buffered sends ends both members with its reason", "[failures][buffered]") {
    const int64_t count = GENERATE(1, 1'000'000);
    on_each(
        Members::any, fmt::format(", {} elements", count),
        [&](Participant& m) {
            auto c = m.make();
            if (m.rank == 1) {
                m.rendezvous.get("sent", 10s);
                c->abort("the disk is full");
                m.rendezvous.get("over", 20s);
            } else {
                fill_slots(m, *c, count);
                expect_fault(m, 3000ms, {"receive", "rank 1", "the disk is full"}, [&] { attempt(m, *c, "receive"); });
                m.rendezvous.set("over", "1");
            }
            expect_gone(m, std::move(c), 2000ms);
        },
        30s);
}

TEST_CASE("what was buffered for nobody is given back", "[failures][buffered]") {
    const auto once = [] {
        on_each(
            Members::threads, "",  // the process is this one
            [](Participant& m) {
                auto c = m.make();
                if (m.rank == 1) {
                    m.rendezvous.get("sent", 10s);
                    c.reset();
                    m.rendezvous.set("left", "1");
                    return;
                }
                fill_slots(m, *c, 1'000'000);
                m.rendezvous.get("left", 10s);
                expect_fault(m, 3000ms, {"receive", "rank 1"}, [&] { attempt(m, *c, "receive"); });
            },
            500ms);
    };
    once();  // what UCX keeps for the life of the process
    const Held before = Held::now();
    constexpr int rounds = 4;
    for (int i = 0; i < rounds; ++i) once();
    Held after = Held::now();
    for (int times = 0; times < 100 && after.threads > before.threads; ++times) {
        std::this_thread::sleep_for(20ms);  // a thread that has been joined may still be listed for a moment
        after = Held::now();
    }
    CHECK(after.files <= before.files);
    CHECK(after.threads <= before.threads);
    CHECK(after.heap - before.heap < 4'000'000);  // one copy of all that were made
}
