// Sends and receives, and what the contract claims of them.
#include <catch2/catch.hpp>
#include <cstring>
#include <thread>

#include <fmt/format.h>

#include "harness.h"

using namespace orrery;
using namespace orrery::conformance;
using namespace std::chrono_literals;

namespace {

const std::vector<std::string> all_well;

Tensor filled(Participant& m, int64_t count, double value) {
    const Tensor t = m.arena.tensor(DType::f32, count);
    for (int64_t i = 0; i < count; ++i) store(t, i, value);
    return t;
}

bool holds(const Tensor& t, double value) {
    for (int64_t i = 0; i < t.count(); ++i)
        if (load(t, i) != value) return false;
    return true;
}

}  // namespace

TEST_CASE("messages arrive in order, of any size", "[messages]") {
    const Backend backend = GENERATE(from_range(backends()));
    INFO(backend);
    const bool grouped = contract_of(backend).groups_messages();
    const auto outcome = run(backend, 3, [&](Participant& m) {
        const auto c = m.make();
        const int next = static_cast<int>((m.rank + 1) % 3), previous = static_cast<int>((m.rank + 2) % 3);
        for (const int64_t count : {0, 1, 1000, 100'003, 2'000'003}) {
            m.arena.clear();
            const Tensor out = filled(m, count, static_cast<double>(m.rank)), in = filled(m, count, -1);
            exchange(*c, grouped, out, next, in, previous, count);
            m.expect(holds(in, previous), fmt::format("{} elements are wrong", count));
        }
        m.arena.clear();
        std::vector<Event> sends, receives;
        if (grouped) c->begin_group();
        for (int i = 0; i < 10; ++i) sends.push_back(c->send(filled(m, 0, 0), next, i));
        for (int i = 0; i < 10; ++i) {
            receives.push_back(c->receive(filled(m, 0, 0), previous, i));
            if (!grouped) receives.back().wait();
        }
        if (grouped) c->end_group();
        for (const auto* events : {&receives, &sends})
            for (const Event& e : *events) e.wait();
        const Traffic t = c->traffic();
        m.expect(t.messages == 15, fmt::format("{} messages instead of 15", t.messages));
        m.expect(t.bytes_sent == 4 * 2'101'007, fmt::format("{} bytes", t.bytes_sent));
    });
    CHECK(outcome.failures == all_well);
}

TEST_CASE("over TCP alone the data of a collective does not wait for its receiver", "[messages]") {
    const std::vector<Backend> some = with_option("transports", {std::string("tcp"), {}, false});
    if (some.empty()) return;
    const Backend backend = GENERATE_COPY(from_range(some));
    INFO(backend);
    const auto outcome = run(backend, 2, [&](Participant& m) {
        const auto c = m.make();
        const Tensor data = filled(m, 1'000'000, m.rank == 0 ? 7 : -1);
        if (m.rank == 1) m.rendezvous.get("sent", 5s);
        c->broadcast(data, 0).wait();
        if (m.rank == 0) m.rendezvous.set("sent", "1");
        m.expect(holds(data, 7), "the data is wrong");
    });
    CHECK(outcome.failures == all_well);
}

TEST_CASE("two members that send first do not block each other", "[messages]") {
    const Backend backend = GENERATE(from_range(backends()));
    INFO(backend);
    const bool grouped = contract_of(backend).groups_messages();
    const auto outcome = run(backend, 2, [&](Participant& m) {
        const auto c = m.make();
        const int peer = 1 - static_cast<int>(m.rank);
        const Tensor out = filled(m, 1'000'000, static_cast<double>(m.rank)), in = filled(m, 1'000'000, -1);
        for (int round = 0; round < 5; ++round) {
            exchange(*c, grouped, out, peer, in, peer, round);
            m.expect(holds(in, peer), "wrong contents");
        }
    });
    CHECK(outcome.failures == all_well);
}

TEST_CASE("a send is complete when the contract says so", "[messages]") {
    const Backend backend = GENERATE(from_range(backends()));
    INFO(backend);
    const auto contract = contract_of(backend);
    const auto outcome = run(backend, 2, [&](Participant& m) {
        const auto c = m.make();
        connect(m, *c, static_cast<int>(1 - m.rank));
        const Tensor t = filled(m, 1'000'000, static_cast<double>(m.rank));
        if (m.rank == 0) {
            const Event sent = c->send(t, 1, 5);
            std::this_thread::sleep_for(300ms);
            switch (contract.send) {
                case TransportContract::Send::rendezvous:
                    m.expect(!sent.done(), "a rendezvous send was done before its receive began");
                    break;
                case TransportContract::Send::buffered:
                    m.expect(sent.done(), "a buffered send waits for its receive");
                    break;
                case TransportContract::Send::grouped: break;  // done where its group is, which may be at once
            }
            m.rendezvous.set("go", "1");
            sent.wait();
            m.expect(sent.done(), "not done after its wait");
        } else {
            m.rendezvous.get("go", 10s);
            c->receive(t, 0, 5).wait();
            m.expect(holds(t, 0), "wrong contents");
        }
    });
    CHECK(outcome.failures == all_well);
}

TEST_CASE("a message of the wrong tag or size is an error on the receiver", "[messages]") {
    const Backend backend = GENERATE(from_range(backends()));
    INFO(backend);
    if (!contract_of(backend).checks_tags) return;  // promises nothing here
    const auto outcome = run(
        backend, 2,
        [](Participant& m) {
            const auto c = m.make();
            const Tensor t = filled(m, 8, 1);
            if (m.rank == 0) {
                try {
                    c->send(t, 1, 5).wait();
                } catch (const Error&) {
                }
                return;
            }
            try {
                c->receive(t, 0, 6).wait();
                m.expect(false, "tag 5 was taken for tag 6");
            } catch (const Error& error) {
                m.expect(error.fault() == Fault::peer, "wrong fault");
                m.expect(std::string(error.what()).find("rank 0") != std::string::npos, error.what());
            }
        },
        1s);
    CHECK(outcome.failures == all_well);
}
