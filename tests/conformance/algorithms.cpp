// Every algorithm of collectives over messages, and tables of chunks over every transport.
#include <array>
#include <catch2/catch.hpp>
#include <random>

#include <fmt/format.h>

#include "suites/chosen.h"
#include "collective/chunk_communicator.h"
#include "harness.h"

using namespace orrery;
using namespace orrery::conformance;
using namespace std::chrono_literals;
using C = TransportContract;

namespace {

const std::vector<std::string> all_well;

constexpr int64_t period = 23;
double value(int64_t rank, int64_t i) { return static_cast<double>((i * 5 + rank * 11) % period); }

Tensor input(Participant& m, DType dtype, int64_t count) {
    const Tensor t = m.arena.tensor(dtype, count);
    for (int64_t i = 0; i < count; ++i) store(t, i, value(m.rank, i));
    return t;
}

/// What the ranks' values add up to, by element.
class Sums {
public:
    explicit Sums(int64_t ranks) {
        for (int64_t i = 0; i < period; ++i)
            for (int64_t r = 0; r < ranks; ++r) sums_[static_cast<size_t>(i)] += value(r, i);
    }
    double operator()(int64_t i) const { return sums_[static_cast<size_t>(i % period)]; }

private:
    std::array<double, period> sums_{};
};

template <class Expected>
void compare(Participant& m, const std::string& what, const Tensor& got, Expected expected) {
    for (int64_t i = 0; i < got.count(); ++i)
        if (load(got, i) != expected(i))
            return m.expect(false, fmt::format("{}: element {} of {} is {} instead of {}", what, i, got.count(),
                                               load(got, i), expected(i)));
}

void try_all_reduce(Participant& m, Communicator& c, int64_t count, bool in_place) {
    const Sums expected(m.size);
    for (const DType dtype : {DType::f32, DType::bf16, DType::i32}) {
        m.arena.clear();
        const Tensor in = input(m, dtype, count), out = in_place ? in : m.arena.tensor(dtype, count);
        c.all_reduce(in, out, ReduceOp::sum).wait();
        compare(m, fmt::format("all_reduce of {} {}", count, name_of(dtype)), out, expected);
        if (!in_place) compare(m, "its input", in, [&](int64_t i) { return value(m.rank, i); });
    }
}

/// Bits that show any other order of addition.
std::string sum_of_fractions(Participant& m, Communicator& c, int64_t count) {
    m.arena.clear();
    const Tensor t = m.arena.tensor(DType::f32, count);
    std::mt19937 random(static_cast<uint32_t>(m.rank) + 3);
    std::uniform_real_distribution<double> values(-1, 1);
    for (int64_t i = 0; i < count; ++i) store(t, i, values(random));
    c.all_reduce(t, t, ReduceOp::sum).wait();
    uint64_t h = 1469598103934665603ull;
    for (int64_t i = 0; i < t.bytes(); ++i) h = (h ^ static_cast<const uint8_t*>(t.data)[i]) * 1099511628211ull;
    return fmt::format("{:016x}", h);
}

}  // namespace

TEST_CASE("every algorithm that can be asked for", "[algorithms]") {
    const std::string name = GENERATE("ring", "recursive_doubling", "halving_doubling", "tree", "hierarchical");
    const int ranks = GENERATE(2, 3, 4, 5);
    for (const Backend& backend : with_option("all_reduce", {name, {}, false})) {
        INFO(backend << ", " << ranks << " ranks");
        const auto outcome = run(backend, ranks, [](Participant& m) {
            const auto c = m.make();
            for (const int64_t count : {0, 1, 7, 4099, 300'007})
                for (const bool in_place : {false, true}) try_all_reduce(m, *c, count, in_place);
            m.note(sum_of_fractions(m, *c, 50'021));
            m.note(sum_of_fractions(m, *c, 50'021));
        });
        CHECK(outcome.failures == all_well);
        for (const auto& notes : outcome.notes) {
            CHECK(notes == outcome.notes[0]);  // alike on all members
            CHECK(notes.at(0) == notes.at(1));
        }
    }
}

TEST_CASE("members with other segments are told whose they are", "[algorithms]") {
    for (const Backend& backend : with_option("segment_kib", {int64_t{128}, {}, false})) {
        INFO(backend);
        const auto outcome = run(backend, 2, [&](Participant& m) {
            Backend other = backend;
            other.options[0].second.data = int64_t{64};
            const auto mine = load_transport(m.rank == 1 ? other : backend);
            const std::string theirs = m.rank == 1 ? "rank 0 has segment_kib = 128" : "rank 1 has segment_kib = 64";
            const Group group{"all", "axis", {0, 1}, static_cast<int>(m.rank)};
            expect_fault(m, 3000ms, {theirs, "the same table"},
                         [&] { mine->make(group, m.rendezvous, std::span(&m.arena.memory, 1), m.timeout); });
        });
        CHECK(outcome.failures == all_well);
    }
}

TEST_CASE("an unknown algorithm is refused with those there are", "[algorithms]") {
    CHECK(with_option("all_reduce", {std::string("rind"), {}, false}).empty());
    CHECK(with_option("broadcast", {std::string("bush"), {}, false}).empty());
    // Only gloo and ucx let one choose, and ThreadSanitizer cannot look into them.
    if (suites::chosen("transport").empty())
        CHECK(with_option("broadcast", {std::string("chain"), {}, false}).empty() == thread_sanitizer);
}

TEST_CASE("tables of chunks run over every transport", "[algorithms]") {
    const Backend backend = GENERATE(from_range(backends()));
    const int ranks = GENERATE(2, 3, 4);
    if (!serves_host(backend)) return;  // whose collectives are never made of messages: they add on the processor
    INFO(backend << ", " << ranks << " ranks");
    const bool arena = contract_of(backend).needs_arena;
    const auto outcome = run(backend, ranks, [&](Participant& m) {
        const int members = static_cast<int>(m.size);
        const Sums summed(m.size);
        ChunkTable scatter = ring_table(members), gather = scatter;
        scatter.collective = Opcode::reduce_scatter;
        gather.collective = Opcode::all_gather;
        scatter.moves.clear();
        gather.moves.clear();
        for (const ChunkMove& move : ring_table(members).moves) {
            ChunkMove shifted = move;  // the ring leaves chunk r+1 with member r
            shifted.chunk = (move.chunk + members - 1) % members;
            if (move.kind == ChunkMove::Kind::reduce) scatter.moves.push_back(shifted);
            if (move.kind == ChunkMove::Kind::copy) gather.moves.push_back(shifted);
        }
        prove(scatter);
        prove(gather);
        std::vector<ChunkTable> reduces{ring_table(members), recursive_doubling_table(members),
                                        halving_doubling_table(members), tree_table(members)};
        for (size_t k = 0; k < reduces.size(); ++k) {
            std::vector<ChunkTable> tables{reduces[k], gather};
            if (!arena) tables.push_back(scatter);
            const auto made = std::make_unique<ChunkCommunicator>(m.make(fmt::format("group{}", k)), tables);
            Communicator& c = *made;
            for (const int64_t count : {0, 1, 7, 4099, 100'003})
                for (const bool in_place : {false, true}) try_all_reduce(m, c, count, in_place);
            m.arena.clear();
            const Tensor block = input(m, DType::f32, 1001), whole = m.arena.tensor(DType::f32, 1001 * m.size);
            c.all_gather(block, whole).wait();
            compare(m, "all_gather", whole, [](int64_t i) { return value(i / 1001, i % 1001); });
            const Tensor in = input(m, DType::f32, 1001 * m.size);
            c.reduce_scatter(in, block, ReduceOp::sum).wait();
            compare(m, "reduce_scatter", block, [&](int64_t i) { return summed(m.rank * 1001 + i); });
            c.broadcast(block, 0).wait();
            compare(m, "broadcast", block, summed);
        }
    });
    CHECK(outcome.failures == all_well);
}

TEST_CASE("why a collective made of messages may not begin among unmet ones", "[algorithms]") {
    // What check_collective_tables refuses: in order, the collective takes the plan's message for its own.
    const Backend backend = GENERATE(from_range(backends()));
    const bool met = GENERATE(false, true);
    const C contract = contract_of(backend);
    if (!serves_host(backend)) return;
    INFO(backend << (met ? ", met" : ", unmet"));
    const auto outcome = run(
        backend, 2,
        [&](Participant& m) {
            const std::unique_ptr<Communicator> c =
                std::make_unique<ChunkCommunicator>(m.make(), std::vector<ChunkTable>{ring_table(2)});
            const Tensor mine = input(m, DType::f32, 100), message = m.arena.tensor(DType::f32, 100);
            const Tensor in = input(m, DType::f32, 4099), out = m.arena.tensor(DType::f32, 4099);
            const Sums summed(m.size);
            try {
                Event sent;
                if (m.rank == 0) sent = c->send(mine, 1, 1);
                if (m.rank == 1 && met) c->receive(message, 0, 1).wait();
                c->all_reduce(in, out, ReduceOp::sum).wait();
                compare(m, "all_reduce", out, summed);
                if (m.rank == 1 && !met) c->receive(message, 0, 1).wait();
                sent.wait();
                m.note("done");
            } catch (const Error& error) {
                m.expect(!met && contract.matching == C::Matching::order, error.what());
                m.expect(error.fault() == Fault::peer, error.what());
            }
            // Nobody takes its memory away while the other still reads from it.
            m.rendezvous.set(fmt::format("over {}", m.rank), "1");
            m.rendezvous.get(fmt::format("over {}", 1 - m.rank), 10s);
        },
        1s);
    CHECK(outcome.failures == all_well);
    const bool all_done = outcome.notes[0].size() == 1 && outcome.notes[1].size() == 1;
    CHECK(all_done == (met || contract.matching == C::Matching::tag));
}
