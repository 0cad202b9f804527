// Results, bytes and messages of every collective, on every transport.
#include <catch2/catch.hpp>
#include <cstring>
#include <random>

#include <fmt/format.h>

#include "harness.h"

using namespace orrery;
using namespace orrery::conformance;

namespace {

double value(int64_t rank, int64_t i) { return static_cast<double>((i * 7 + rank * 13) % 31); }

double reduced(ReduceOp op, int64_t ranks, int64_t i) {
    double r = value(0, i);
    for (int64_t rank = 1; rank < ranks; ++rank) {
        const double v = value(rank, i);
        r = op == ReduceOp::sum ? r + v : op == ReduceOp::max ? std::max(r, v) : std::min(r, v);
    }
    return r;
}

/// Element i of this rank's input is value(rank, i).
Tensor input(Participant& m, DType dtype, int64_t count) {
    const Tensor t = m.arena.tensor(dtype, count);
    for (int64_t i = 0; i < count; ++i) store(t, i, value(m.rank, i));
    return t;
}

template <class Expected>
void compare(Participant& m, const std::string& what, const Tensor& got, Expected expected) {
    int64_t wrong = 0, first = -1;
    for (int64_t i = 0; i < got.count(); ++i) {
        if (load(got, i) == expected(i)) continue;
        if (wrong++ == 0) first = i;
    }
    m.expect(wrong == 0, wrong ? fmt::format("{}: {} of {} wrong, first at {}: {} instead of {}", what, wrong,
                                             got.count(), first, load(got, first), expected(first))
                               : "");
}

std::string title(const char* op, const Tensor& in, bool in_place) {
    return fmt::format("{} of {}[{}]{}", op, name_of(in.dtype), in.count(), in_place ? " in place" : "");
}

void try_all_reduce(Participant& m, Communicator& c, DType dtype, int64_t count, bool in_place) {
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::max, ReduceOp::min}) {
        m.arena.clear();
        const Tensor in = input(m, dtype, count), out = in_place ? in : m.arena.tensor(dtype, count);
        c.all_reduce(in, out, op).wait();
        compare(m, title("all_reduce", in, in_place), out, [&](int64_t i) { return reduced(op, m.size, i); });
        if (!in_place) compare(m, "its input", in, [&](int64_t i) { return value(m.rank, i); });
    }
}

void try_reduce_scatter(Participant& m, Communicator& c, DType dtype, int64_t count, bool in_place) {
    m.arena.clear();
    const Tensor in = input(m, dtype, count * m.size);
    Tensor out = in_place ? in : m.arena.tensor(dtype, count);
    out.shape = {count};
    if (in_place) out.data = static_cast<char*>(in.data) + m.rank * out.bytes();
    c.reduce_scatter(in, out, ReduceOp::sum).wait();
    compare(m, title("reduce_scatter", in, in_place), out,
            [&](int64_t i) { return reduced(ReduceOp::sum, m.size, m.rank * count + i); });
}

void try_all_gather(Participant& m, Communicator& c, DType dtype, int64_t count, bool in_place) {
    m.arena.clear();
    const Tensor out = m.arena.tensor(dtype, count * m.size);
    Tensor in = in_place ? out : input(m, dtype, count);
    in.shape = {count};
    if (in_place) in.data = static_cast<char*>(out.data) + m.rank * in.bytes();
    for (int64_t i = 0; i < count; ++i) store(in, i, value(m.rank, i));
    c.all_gather(in, out).wait();
    compare(m, title("all_gather", in, in_place), out, [&](int64_t i) { return value(i / count, i % count); });
}

void try_all_to_all(Participant& m, Communicator& c, DType dtype, int64_t count, bool in_place) {
    m.arena.clear();
    const Tensor in = input(m, dtype, count * m.size), out = in_place ? in : m.arena.tensor(dtype, count * m.size);
    c.all_to_all(in, out).wait();
    compare(m, title("all_to_all", in, in_place), out,
            [&](int64_t i) { return value(i / count, m.rank * count + i % count); });
}

void try_broadcast(Participant& m, Communicator& c, DType dtype, int64_t count) {
    for (int root = 0; root < m.size; ++root) {
        m.arena.clear();
        const Tensor t = input(m, dtype, count);
        c.broadcast(t, root).wait();
        compare(m, title("broadcast", t, true), t, [&](int64_t i) { return value(root, i); });
    }
}

void try_all(Participant& m, Communicator& c, DType dtype, int64_t count) {
    for (const bool in_place : {false, true}) {
        try_all_reduce(m, c, dtype, count, in_place);
        try_reduce_scatter(m, c, dtype, count, in_place);
        try_all_gather(m, c, dtype, count, in_place);
        try_all_to_all(m, c, dtype, count, in_place);
    }
    try_broadcast(m, c, dtype, count);
}

const std::vector<std::string> all_well;

/// ceil(log2 P)
int64_t rounds(int64_t members) {
    int64_t n = 0;
    while ((int64_t{1} << n) < members) ++n;
    return n;
}

/// Random floats over many magnitudes, so that any other order of addition shows.
void fill_random(const Tensor& t, uint32_t seed) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<float> values(-1, 1);
    for (int64_t i = 0; i < t.count(); ++i)
        static_cast<float*>(t.data)[i] = values(random) * std::ldexp(1.f, static_cast<int>(random() % 20));
}

std::string digest(const Tensor& t) {
    uint64_t h = 1469598103934665603ull;
    for (int64_t i = 0; i < t.bytes(); ++i) h = (h ^ static_cast<const uint8_t*>(t.data)[i]) * 1099511628211ull;
    return fmt::format("{:016x}", h);
}

}  // namespace

TEST_CASE("every collective, dtype and odd count", "[collectives]") {
    const Backend backend = GENERATE(from_range(backends()));
    const int ranks = GENERATE(1, 2, 3, 4);
    INFO(backend << ", " << ranks << " ranks");
    const auto outcome = run(backend, ranks, [](Participant& m) {
        const auto c = m.make();
        for (const DType dtype : m.transport.contract().dtypes)
            for (const int64_t count : {0, 1, 3, 1021, 4099}) try_all(m, *c, dtype, count);
    });
    CHECK(outcome.failures == all_well);
}

TEST_CASE("large odd counts", "[collectives]") {
    const Backend backend = GENERATE(from_range(backends()));
    const int ranks = GENERATE(2, 3);
    INFO(backend << ", " << ranks << " ranks");
    const auto outcome = run(backend, ranks, [](Participant& m) {
        constexpr int64_t less = thread_sanitizer ? 20 : 1;
        const auto c = m.make();
        try_all(m, *c, DType::f32, 1'000'003 / less);
        try_all(m, *c, DType::bf16, 1'000'003 / less);
        try_all_reduce(m, *c, DType::f32, 5'000'011 / less, false);  // past the cache
    });
    CHECK(outcome.failures == all_well);
}

TEST_CASE("blocks of many segments", "[collectives]") {
    for (const Backend& backend : with_option("segment_kib", {int64_t{64}, {}, false})) {
        INFO(backend);
        const auto outcome = run(backend, 3, [](Participant& m) {
            const auto c = m.make();
            try_all(m, *c, DType::f32, 100'003);
            try_all(m, *c, DType::bf16, 100'003);
        });
        CHECK(outcome.failures == all_well);
    }
}

TEST_CASE("bytes and messages are those of the contract", "[collectives]") {
    const Backend backend = GENERATE(from_range(backends()));
    const int ranks = GENERATE(1, 2, 3, 4);
    const int64_t count = GENERATE(12, 48'000, thread_sanitizer ? 120'000 : 1'200'000);  // divisible by every P
    INFO(backend << ", " << ranks << " ranks, " << count << " elements");
    const auto outcome = run(backend, ranks, [count](Participant& m) {
        const auto c = m.make();
        const int64_t P = m.size, S = count * 4, peers = P - 1;
        Traffic last;
        const auto expect = [&](const char* op, int64_t messages, int64_t bytes) {
            const Traffic now = c->traffic();
            m.expect(now.collectives == last.collectives + 1, fmt::format("{}: not counted once", op));
            m.expect(now.messages - last.messages >= messages,
                     fmt::format("{}: {} messages, {} at least", op, now.messages - last.messages, messages));
            m.expect(now.bytes_sent - last.bytes_sent == bytes,
                     fmt::format("{}: {} bytes, {} expected", op, now.bytes_sent - last.bytes_sent, bytes));
            last = now;
        };
        const Tensor whole = input(m, DType::f32, count), other = m.arena.tensor(DType::f32, count);
        Tensor block = other;
        block.shape = {count / P};
        c->all_reduce(whole, other, ReduceOp::sum).wait();
        const bool small = S <= m.transport.contract().small_bytes && P > 2;
        if (small) {  // fewer messages for more bytes
            const Traffic now = c->traffic();
            m.expect(now.messages <= rounds(P), fmt::format("{} messages, {} at most", now.messages, rounds(P)));
            m.expect(now.bytes_sent <= S * rounds(P), fmt::format("{} bytes of all_reduce", now.bytes_sent));
            last = now;
        } else {
            expect("all_reduce", peers, 2 * S * peers / P);
        }
        c->all_gather(block, whole).wait();
        expect("all_gather", peers, S * peers / P);
        c->reduce_scatter(whole, block, ReduceOp::sum).wait();
        expect("reduce_scatter", peers, S * peers / P);
        c->all_to_all(whole, other).wait();
        expect("all_to_all", peers, S * peers / P);
        const Traffic before = c->traffic();
        c->broadcast(whole, 0).wait();
        m.note(std::to_string(c->traffic().bytes_sent - before.bytes_sent));
    });
    CHECK(outcome.failures == all_well);
    int64_t sent = 0;
    for (const auto& notes : outcome.notes) sent += std::stoll(notes.at(0));
    CHECK(sent == count * 4 * (ranks - 1));  // each member but the root receives the tensor once
}

TEST_CASE("an odd count costs the group the closed form in total", "[collectives]") {
    const Backend backend = GENERATE(from_range(backends()));
    const int ranks = GENERATE(2, 3, 4);
    const int64_t count = GENERATE(1, 5, 10'007);
    INFO(backend << ", " << ranks << " ranks, " << count << " elements");
    const auto outcome = run(backend, ranks, [count](Participant& m) {
        const auto c = m.make();
        const Tensor t = input(m, DType::f32, count);
        c->all_reduce(t, t, ReduceOp::sum).wait();
        m.note(std::to_string(c->traffic().bytes_sent));
    });
    REQUIRE(outcome.failures == all_well);
    int64_t sent = 0;
    for (const auto& notes : outcome.notes) sent += std::stoll(notes.at(0));
    const bool small = count * 4 <= contract_of(backend).small_bytes && ranks > 2;
    if (small)
        CHECK(sent <= ranks * rounds(ranks) * count * 4);
    else
        CHECK(sent == 2 * count * 4 * (ranks - 1));
}

TEST_CASE("sums are deterministic, alike on all members, and at two ranks alike on all transports", "[collectives]") {
    const int ranks = GENERATE(2, 3, 4);
    const int64_t count = GENERATE(1000, 300'001);
    std::vector<std::string> of_transports;
    for (const Backend& backend : backends()) {
        INFO(backend << ", " << ranks << " ranks, " << count << " elements");
        const auto outcome = run(backend, ranks, [count](Participant& m) {
            const auto c = m.make();
            for (int repeat = 0; repeat < 3; ++repeat) {
                m.arena.clear();
                const Tensor in = m.arena.tensor(DType::f32, count),
                             out = repeat ? m.arena.tensor(DType::f32, count) : in;
                fill_random(in, static_cast<uint32_t>(m.rank) + 1);
                c->all_reduce(in, out, ReduceOp::sum).wait();
                m.note(digest(out));
            }
        });
        REQUIRE(outcome.failures == all_well);
        const auto contract = contract_of(backend);
        if (contract.deterministic) {
            for (const auto& notes : outcome.notes) CHECK((notes[0] == notes[1] && notes[1] == notes[2]));
        }
        if (contract.rank_invariant) {
            for (const auto& notes : outcome.notes) CHECK(notes == outcome.notes[0]);
        }
        of_transports.push_back(outcome.notes[0][0]);
    }
    if (ranks == 2) CHECK(of_transports == std::vector<std::string>(of_transports.size(), of_transports[0]));
}

TEST_CASE("groups that cross each other stay apart", "[collectives]") {
    const Backend backend = GENERATE(from_range(backends()));
    INFO(backend);
    const auto outcome = run(backend, 4, [](Participant& m) {
        const int64_t row = m.rank / 2, column = m.rank % 2;
        const auto rows = m.make(fmt::format("tp/{}", row), {2 * row, 2 * row + 1});
        const auto columns = m.make(fmt::format("dp/{}", column), {column, column + 2});
        const auto all = m.make();
        for (int64_t i = 0; i < 50; ++i) {
            m.arena.clear();
            const Tensor t = m.arena.tensor(DType::f32, 1 + i * 331);
            const auto fill = [&](double v) {
                for (int64_t k = 0; k < t.count(); ++k) store(t, k, v);
            };
            const auto same = [&](double v) {
                m.expect(load(t, 0) == v && load(t, t.count() - 1) == v,
                         fmt::format("round {}: {} instead of {}", i, load(t, 0), v));
            };
            fill(static_cast<double>(m.rank + 1));
            rows->all_reduce(t, t, ReduceOp::sum).wait();
            same(static_cast<double>(4 * row + 3));
            columns->all_reduce(t, t, ReduceOp::sum).wait();
            same(10);
            all->all_reduce(t, t, ReduceOp::max).wait();
            same(10);
        }
    });
    CHECK(outcome.failures == all_well);
}

TEST_CASE("a wrong count or dtype is refused before anything is sent", "[collectives]") {
    const Backend backend = GENERATE(from_range(backends()));
    INFO(backend);
    const auto outcome = run(backend, 2, [](Participant& m) {
        const auto c = m.make();
        const Tensor four = input(m, DType::f32, 4), three = input(m, DType::f32, 3), halves = input(m, DType::bf16, 4);
        const auto refused = [&](const char* what, auto call) {
            try {
                call();
                m.expect(false, fmt::format("{} was accepted", what));
            } catch (const Error& error) {
                m.expect(error.fault() == Fault::failed, fmt::format("{}: wrong fault: {}", what, error.what()));
            }
        };
        refused("all_reduce 4 -> 3", [&] { c->all_reduce(four, three, ReduceOp::sum); });
        refused("all_reduce f32 -> bf16", [&] { c->all_reduce(four, halves, ReduceOp::sum); });
        refused("all_gather 4 -> 3", [&] { c->all_gather(four, three); });
        refused("reduce_scatter 3 -> 4", [&] { c->reduce_scatter(three, four, ReduceOp::sum); });
        refused("all_to_all of 3 among 2", [&] { c->all_to_all(three, three); });
        refused("broadcast from member 2", [&] { c->broadcast(four, 2); });
        refused("send to member 2", [&] { c->send(four, 2, 0); });
        m.expect(c->traffic().bytes_sent == 0, "bytes were sent");
        c->all_reduce(four, four, ReduceOp::sum).wait();
        compare(m, "all_reduce afterwards", four, [](int64_t i) { return reduced(ReduceOp::sum, 2, i); });
    });
    CHECK(outcome.failures == all_well);
}
