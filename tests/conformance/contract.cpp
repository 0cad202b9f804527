// Each line of a transport's contract, as its ranks can see it.
#include <catch2/catch.hpp>
#include <cstring>
#include <random>
#include <thread>

#include <fmt/format.h>

#include "suites/chosen.h"
#include "harness.h"

using namespace orrery;
using namespace orrery::conformance;
using namespace std::chrono_literals;
using C = TransportContract;

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

/// Every built transport as it comes, and those that buffer sends when told so.
std::vector<Backend> senders() {
    std::vector<Backend> all = backends();
    for (Backend& backend : with_option("slots", {int64_t{2}, {}, false})) all.push_back(backend);
    return all;
}

}  // namespace

TEST_CASE("what cannot run on this machine is named", "[contract]") {
    for (const std::string& one : skipped()) WARN("skipped: " << one);
    const std::vector<Backend> all = backends();
    const auto runs = [&](const char* name) {
        return std::any_of(all.begin(), all.end(), [&](const Backend& backend) { return backend.transport == name; });
    };
    const std::vector<std::string> names = suites::chosen("transport");
    for (const std::string& name : names.empty() ? std::vector<std::string>{"threads", "shm"} : names)
        CHECK(runs(name.c_str()));
}

TEST_CASE("a contract names what it promises", "[contract]") {
    const Backend backend = GENERATE(from_range(senders()));
    INFO(backend);
    const C c = contract_of(backend);
    CHECK(!c.dtypes.empty());
    CHECK(!c.devices.empty());
    CHECK(!c.memory.empty());
    // Of ours: the kernel knows who is on this host and whose it is; nothing between hosts proves who speaks.
    const std::string& name = backend.transport;
    if (name == "shm" || name == "threads") CHECK(c.authenticates);
    if (name == "gloo" || name == "ucx" || name == "nccl") CHECK(!c.authenticates);
    CHECK((c.text().find("authenticates") != std::string::npos) == c.authenticates);
    switch (c.send) {
        case C::Send::rendezvous:
        case C::Send::grouped: CHECK(c.slots == 0); break;
        case C::Send::buffered: CHECK(c.slots > 0); break;
    }
    CHECK((!c.same_process || c.same_host));
    CHECK(c.text().find("sends") != std::string::npos);
}

TEST_CASE("rendezvous sends of any size wait for their receive; k buffered ones do not", "[contract]") {
    const Backend backend = GENERATE(from_range(senders()));
    const int64_t count = GENERATE(1, 1000, 1'000'000);
    INFO(backend << ", " << count << " elements");
    const C contract = contract_of(backend);
    const auto outcome = run(backend, 2, [&](Participant& m) {
        const auto c = m.make();
        connect(m, *c, static_cast<int>(1 - m.rank));
        const int sends = contract.slots + 1;
        if (m.rank == 0) {
            std::vector<Tensor> data;
            std::vector<Event> events;
            for (int i = 0; i < sends; ++i) {
                data.push_back(filled(m, count, i));
                events.push_back(c->send(data.back(), 1, 5));
            }
            std::this_thread::sleep_for(100ms);
            for (int i = 0; i < sends; ++i) {
                const bool done = events[static_cast<size_t>(i)].done();
                switch (contract.send) {
                    case C::Send::rendezvous: m.expect(!done, "a rendezvous send was done unmet"); break;
                    case C::Send::grouped: break;
                    case C::Send::buffered:
                        m.expect(done == (i < contract.slots),
                                 fmt::format("send {} of {} slots", i + 1, contract.slots));
                        // The memory is the sender's again.
                        if (done) std::memset(data[static_cast<size_t>(i)].data, 0xff, 4);
                        break;
                }
            }
            m.rendezvous.set("go", "1");
            for (const Event& event : events) event.wait();
            return;
        }
        m.rendezvous.get("go", 10s);
        const Tensor in = filled(m, count, -1);
        for (int i = 0; i < sends; ++i) {
            c->receive(in, 0, 5).wait();
            m.expect(holds(in, i), fmt::format("message {} has other contents", i));
        }
    });
    CHECK(outcome.failures == all_well);
}

TEST_CASE("no send waits for its receiver, however many are unmet", "[contract]") {
    const Backend backend = GENERATE(from_range(senders()));
    INFO(backend);
    const auto outcome = run(
        backend, 2,
        [&](Participant& m) {
            const auto c = m.make();
            connect(m, *c, static_cast<int>(1 - m.rank));
            constexpr int sends = 100;
            std::vector<Tensor> data;
            for (int i = 0; i < sends; ++i) data.push_back(filled(m, 10, i));
            const Tensor in = filled(m, 10, -1);
            for (int round = 0; round < 4; ++round) {
                const std::string all_sent = fmt::format("sent {}", round);
                const int64_t sender = round % 2;
                if (m.rank == sender) {
                    std::vector<Event> events;
                    for (int i = 0; i < sends; ++i)
                        events.push_back(c->send(data[static_cast<size_t>(i)], static_cast<int>(1 - sender), i));
                    m.rendezvous.set(all_sent, "1");
                    for (const Event& event : events) event.wait();
                    continue;
                }
                m.rendezvous.get(all_sent, 5s);
                for (int i = 0; i < sends; ++i) {
                    c->receive(in, static_cast<int>(sender), i).wait();
                    m.expect(holds(in, i), fmt::format("message {} of round {} has other contents", i, round));
                }
            }
        },
        2s);
    CHECK(outcome.failures == all_well);
}

TEST_CASE("what was buffered arrives, though its sender leaves at once", "[contract]") {
    const int64_t count = GENERATE(1, 1'000'000);
    for (const Backend& backend : with_option("slots", {int64_t{2}, {}, false})) {
        INFO(backend << ", " << count << " elements");
        const auto outcome = run(backend, 2, [&](Participant& m) {
            auto c = m.make();
            if (m.rank == 0) {
                const Tensor data = filled(m, count, 7);
                const Event sent = c->send(data, 1, 5);
                m.expect(sent.done(), "the send was not buffered");
                std::memset(data.data, 0xff, 4);
                m.rendezvous.set("sent", "1");
                c.reset();
                return;
            }
            m.rendezvous.get("sent", 10s);
            std::this_thread::sleep_for(100ms);
            const Tensor in = filled(m, count, -1);
            c->receive(in, 0, 5).wait();
            m.expect(holds(in, 7), "wrong contents");
        });
        CHECK(outcome.failures == all_well);
    }
}

TEST_CASE("receives return at once, or when they are done, as the contract says", "[contract]") {
    const Backend backend = GENERATE(from_range(backends()));
    INFO(backend);
    const C contract = contract_of(backend);
    const auto outcome = run(backend, 2, [&](Participant& m) {
        const auto c = m.make();
        connect(m, *c, static_cast<int>(1 - m.rank));
        const Tensor t = filled(m, 100'000, static_cast<double>(m.rank));
        if (m.rank == 0) {
            if (contract.queued) m.rendezvous.get("posted", 10s);
            std::this_thread::sleep_for(50ms);
            c->send(t, 1, 1).wait();
            return;
        }
        const Event received = c->receive(t, 0, 1);
        if (contract.queued) m.rendezvous.set("posted", "1");
        if (!contract.queued) m.expect(received.done(), "a receive returned before it was done");
        received.wait();
        m.expect(holds(t, 0), "wrong contents");
    });
    CHECK(outcome.failures == all_well);
}

TEST_CASE("an unmet send holds up only its own lane", "[contract]") {
    const Backend backend = GENERATE(from_range(backends()));
    INFO(backend);
    const C contract = contract_of(backend);
    if (contract.lanes == C::Lanes::communicator) return;  // promises nothing here
    const auto outcome = run(backend, 3, [&](Participant& m) {
        const auto c = m.make();
        const Tensor t = filled(m, 100'000, static_cast<double>(m.rank)), in = filled(m, 100'000, -1);
        if (m.rank == 0) {
            const Event unmet = c->send(t, 1, 1);  // 1 receives it last
            c->send(t, 2, 1).wait();
            if (contract.lanes == C::Lanes::peer_and_direction) {
                c->receive(in, 1, 2).wait();
                m.expect(holds(in, 1), "wrong contents from 1");
            }
            m.expect(!unmet.done() || contract.sends_done_unmet() > 0, "the first send was met too early");
            m.rendezvous.set("go", "1");
            unmet.wait();
        } else if (m.rank == 1) {
            Event back;
            if (contract.lanes == C::Lanes::peer_and_direction) back = c->send(t, 0, 2);
            m.rendezvous.get("go", 10s);
            c->receive(in, 0, 1).wait();
            m.expect(holds(in, 0), "wrong contents");
            back.wait();
        } else {
            c->receive(in, 0, 1).wait();
            m.expect(holds(in, 0), "wrong contents");
        }
    });
    CHECK(outcome.failures == all_well);
}

TEST_CASE("a rank that has done its part may end while others go on", "[contract]") {
    const Backend backend = GENERATE(from_range(senders()));
    INFO(backend);
    const auto outcome = run(backend, 3, [&](Participant& m) {
        const auto c = m.make();
        const Tensor t = filled(m, 100'000, static_cast<double>(m.rank)), in = filled(m, 100'000, -1);
        c->all_reduce(t, in, ReduceOp::sum).wait();
        if (m.rank == 0) {
            const Event sent = c->send(t, 1, 1);
            c->receive(in, 1, 2).wait();
            m.expect(holds(in, 1), "wrong contents from 1");
            sent.wait();
        } else if (m.rank == 1) {
            std::this_thread::sleep_for(500ms);  // rank 2 has ended by now
            c->receive(in, 0, 1).wait();
            m.expect(holds(in, 0), "wrong contents from 0");
            c->send(t, 0, 2).wait();
        }
    });
    CHECK(outcome.failures == all_well);
}

TEST_CASE("receives are matched as the contract says", "[contract]") {
    const Backend backend = GENERATE(from_range(senders()));
    INFO(backend);
    const C contract = contract_of(backend);
    if (!contract.checks_tags) return;  // a later tag is taken for the next
    const auto outcome = run(
        backend, 2,
        [&](Participant& m) {
            const auto c = m.make();
            const Tensor a = filled(m, 100, 1), b = filled(m, 100, 2);
            if (m.rank == 0) {
                try {
                    const Event first = c->send(a, 1, 1), second = c->send(b, 1, 2);
                    first.wait();
                    second.wait();
                    m.expect(contract.matching == C::Matching::tag, "another tag than the next was taken");
                } catch (const Error&) {
                    m.expect(contract.matching == C::Matching::order, "a later tag could not be received first");
                }
                return;
            }
            if (contract.matching == C::Matching::tag) {
                c->receive(a, 0, 2).wait();
                m.expect(holds(a, 2), "tag 2 has other contents");
                c->receive(b, 0, 1).wait();
                m.expect(holds(b, 1), "tag 1 has other contents");
                return;
            }
            try {
                c->receive(a, 0, 2).wait();
                m.expect(false, "tag 1 was taken for tag 2");
            } catch (const Error& error) {
                m.expect(error.fault() == Fault::peer, error.what());
            }
        },
        1s);
    CHECK(outcome.failures == all_well);
}

TEST_CASE("all_reduce adds in the order that the contract names", "[contract]") {
    const Backend backend = GENERATE(from_range(backends()));
    const int ranks = GENERATE(3, 4);
    const int64_t count = GENERATE(100, 200'003);
    INFO(backend << ", " << ranks << " ranks, " << count << " elements");
    const C contract = contract_of(backend);
    const auto outcome = run(backend, ranks, [&](Participant& m) {
        const auto c = m.make();
        std::vector<std::vector<float>> parts(static_cast<size_t>(ranks));
        std::vector<const void*> ins;
        for (int r = 0; r < ranks; ++r) {
            std::mt19937 random(static_cast<uint32_t>(r) + 7);
            std::uniform_real_distribution<float> values(-1, 1);
            for (int64_t i = 0; i < count; ++i) parts[static_cast<size_t>(r)].push_back(values(random));
            ins.push_back(parts[static_cast<size_t>(r)].data());
        }
        std::vector<float> by_rank(static_cast<size_t>(count));
        void* const out = by_rank.data();
        reduce(DType::f32, ReduceOp::sum, ins, std::span(&out, 1), count);
        const Tensor t = m.arena.tensor(DType::f32, count);
        std::memcpy(t.data, ins[static_cast<size_t>(m.rank)], static_cast<size_t>(t.bytes()));
        c->all_reduce(t, t, ReduceOp::sum).wait();
        if (contract.reduction == C::Reduction::by_rank)
            m.expect(std::memcmp(t.data, out, static_cast<size_t>(t.bytes())) == 0, "other bits than in rank order");
        double worst = 0;
        for (int64_t i = 0; i < count; ++i)
            worst = std::max(worst, std::abs(load(t, i) - static_cast<double>(by_rank[static_cast<size_t>(i)])));
        m.expect(worst <= 1e-6, fmt::format("{} off the sum", worst));
    });
    CHECK(outcome.failures == all_well);
}

TEST_CASE("tensors lie where the contract lets them", "[contract]") {
    const Backend backend = GENERATE(from_range(backends()));
    INFO(backend);
    const C contract = contract_of(backend);
    if (std::count(contract.devices.begin(), contract.devices.end(), "cpu") == 0) return;  // the host's are no matter
    const auto outcome = run(backend, 2, [&](Participant& m) {
        const auto c = m.make();
        std::vector<float> heap(50'000, static_cast<float>(m.rank + 1));
        const Tensor t{heap.data(), DType::f32, {50'000}};
        if (contract.needs_arena) {
            try {
                c->all_reduce(t, t, ReduceOp::sum).wait();
                m.expect(false, "a tensor outside of the arenas was accepted");
            } catch (const Error& error) {
                m.expect(error.fault() == Fault::failed, error.what());
            }
        } else {
            c->all_reduce(t, t, ReduceOp::sum).wait();
            m.expect(holds(t, 3), "wrong sums");
        }
        const bool shared = std::count(contract.memory.begin(), contract.memory.end(), MemoryKind::shared) > 0;
        m.expect(shared, "the arena of this test is shared memory");
        const Tensor inside = filled(m, 50'000, static_cast<double>(m.rank + 1));
        c->all_reduce(inside, inside, ReduceOp::sum).wait();
        m.expect(holds(inside, 3), "wrong sums in the arena");
    });
    CHECK(outcome.failures == all_well);
}

TEST_CASE("a transport for threads of one process refuses processes", "[contract]") {
    for (Backend backend : backends()) {
        if (!contract_of(backend).same_process) continue;
        INFO(backend);
        backend.processes = true;
        const auto outcome = run(backend, 2, [](Participant& m) {
            try {
                m.make();
                m.expect(false, "processes were accepted");
            } catch (const Error& error) {
                m.expect(std::string(error.what()).find("threads") != std::string::npos, error.what());
            }
        });
        CHECK(outcome.failures == all_well);
    }
}
