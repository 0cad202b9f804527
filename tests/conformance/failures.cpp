// Who is missing, dead or gives up is named, in bounded time.
#include <signal.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <thread>

#include <fmt/format.h>

#include "harness.h"

using namespace orrery;
using namespace orrery::conformance;
using namespace std::chrono_literals;

namespace {

const std::vector<std::string> all_well;

/// All backends, and those with a transports option again over TCP alone.
std::vector<Backend> and_over_tcp(std::vector<Backend> all) {
    for (Backend& backend : with_option("transports", {std::string("tcp"), {}, false}))
        all.push_back(std::move(backend));
    return all;
}

}  // namespace

TEST_CASE("a member that does not come is named with op and number", "[failures]") {
    const Backend backend = GENERATE(from_range(backends()));
    const std::string op = GENERATE("all_reduce", "small all_reduce", "all_gather", "reduce_scatter", "all_to_all",
                                    "broadcast", "receive", "send");
    INFO(backend << ", " << op);
    const auto outcome = run(
        backend, 2,
        [&](Participant& m) {
            const auto c = m.make();
            const Tensor two = m.arena.tensor(DType::f32, 2'000'000), one = m.arena.tensor(DType::f32, 1'000'000);
            const Tensor small = m.arena.tensor(DType::f32, 4);
            c->all_reduce(one, one, ReduceOp::sum).wait();
            if (m.rank == 1) {
                m.rendezvous.get("over", 10s);
                return;
            }
            const std::string name = op.substr(op.rfind(' ') + 1);
            const std::string number = name == "send" || name == "receive" ? "" : "#2";
            expect_fault(m, 4500ms, {name, number, "rank 1"}, [&] {
                if (op == "all_reduce") c->all_reduce(one, one, ReduceOp::sum).wait();
                if (op == "small all_reduce") c->all_reduce(small, small, ReduceOp::sum).wait();
                if (op == "all_gather") c->all_gather(one, two).wait();
                if (op == "reduce_scatter") c->reduce_scatter(two, one, ReduceOp::sum).wait();
                if (op == "all_to_all") c->all_to_all(two, two).wait();
                if (op == "broadcast") c->broadcast(two, 1).wait();
                if (op == "receive") c->receive(one, 1, 0).wait();
                if (op == "send") c->send(one, 1, 0).wait();
            });
            m.rendezvous.set("over", "1");
        },
        1500ms);
    CHECK(outcome.failures == all_well);
}

TEST_CASE("a killed member is named within a second", "[failures]") {
    const Backend backend = GENERATE(from_range(backends()));
    if (!backend.processes) return;
    const int ranks = GENERATE(2, 3);
    INFO(backend << ", " << ranks << " ranks");
    const auto outcome = run(
        backend, ranks,
        [](Participant& m) {
            const auto c = m.make();
            const Tensor t = m.arena.tensor(DType::f32, 100'000);
            for (int i = 0; i < 3; ++i) c->all_reduce(t, t, ReduceOp::sum).wait();
            if (m.rank == 1) ::kill(::getpid(), SIGKILL);
            expect_fault(m, 3000ms, {"all_reduce #4", "rank 1"}, [&] { c->all_reduce(t, t, ReduceOp::sum).wait(); });
        },
        30s);
    CHECK(outcome.failures == all_well);
}

TEST_CASE("a stopped member is named after the timeout", "[failures]") {
    const Backend backend = GENERATE(from_range(backends()));
    if (!backend.processes) return;
    INFO(backend);
    const auto outcome = run(
        backend, 2,
        [&](Participant& m) {
            const auto c = m.make();
            const Tensor t = m.arena.tensor(DType::f32, 100'000);
            c->all_reduce(t, t, ReduceOp::sum).wait();
            if (m.rank == 1) return stop(m);
            const Stopped other(m);
            const std::string state = backend.transport == "gloo" ? "" : "stopped";
            expect_fault(m, 3000ms, {"all_reduce #2", "rank 1", state},
                         [&] { c->all_reduce(t, t, ReduceOp::sum).wait(); });
        },
        1s);
    CHECK(outcome.failures == all_well);
}

TEST_CASE("abort ends the waits of the member and of the others", "[failures]") {
    const Backend backend = GENERATE(from_range(and_over_tcp(backends())));
    INFO(backend);
    const bool reaches_others = contract_of(backend).aborts;
    const auto outcome = run(
        backend, 2,
        [&](Participant& m) {
            const auto c = m.make();
            const Tensor t = m.arena.tensor(DType::f32, 100'000);
            c->all_reduce(t, t, ReduceOp::sum).wait();
            if (m.rank == 1) {
                std::this_thread::sleep_for(200ms);
                c->abort("the disk is full");
                if (!reaches_others) return;
                expect_fault(m, 3000ms, {"all_reduce"}, [&] { c->all_reduce(t, t, ReduceOp::sum).wait(); });
                m.rendezvous.get("over", 10s);
                return;
            }
            expect_fault(m, reaches_others ? 3000ms : 7000ms, {"all_reduce #2", "rank 1"},
                         [&] { c->all_reduce(t, t, ReduceOp::sum).wait(); });
            m.rendezvous.set("over", "1");
        },
        5s);
    CHECK(outcome.failures == all_well);
}

TEST_CASE("ranks of one process do not read what a member has taken along", "[failures]") {
    const Backend backend = GENERATE(from_range(backends()));
    if (!contract_of(backend).same_process) return;
    const bool gives_up = GENERATE(true, false);
    INFO(backend << (gives_up ? ", it gives up" : ", it ends"));
    const auto outcome = run(
        backend, 2,
        [&](Participant& m) {
            auto c = m.make();
            const Tensor t = m.arena.tensor(DType::f32, 1000);
            if (m.rank == 0) {
                const Event sent = c->send(t, 1, 0);
                if (gives_up) expect_fault(m, 4500ms, {"send", "rank 1"}, [&] { sent.wait(); });
                if (!gives_up) c.reset();
                m.rendezvous.set("left", "1");
                m.rendezvous.get("over", 10s);
                return;
            }
            m.rendezvous.get("left", 10s);
            const std::string why = gives_up ? "rank 0 has given up" : "rank 0 has ended";
            expect_fault(m, 4500ms, {"receive", why}, [&] { c->receive(t, 0, 0).wait(); });
            m.rendezvous.set("over", "1");
        },
        1500ms);
    CHECK(outcome.failures == all_well);
}

TEST_CASE("a group that does not form names who is missing", "[failures]") {
    const Backend backend = GENERATE(from_range(backends()));
    INFO(backend);
    const auto outcome = run(
        backend, 3,
        [](Participant& m) {
            if (m.rank == 2) {
                m.rendezvous.get("over/0", 10s);
                m.rendezvous.get("over/1", 10s);
                return;
            }
            expect_fault(m, 4500ms, {"rank 2", "dp/0"}, [&] { m.make("dp/0", {0, 1, 2}); });
            m.rendezvous.set("over/" + std::to_string(m.rank), "1");
        },
        1500ms);
    CHECK(outcome.failures == all_well);
}
