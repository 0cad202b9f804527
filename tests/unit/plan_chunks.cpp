// Collectives as tables of chunks: the algebra, the proof of progress, the cost, and the tables that are shipped.
#include <catch2/catch.hpp>

#include "plan/chunks/chunks.h"

using namespace orrery;
using Kind = ChunkMove::Kind;

namespace {

ChunkMove move(Kind kind, int step, int chunk, int from, int to, int line = 0) {
    return {kind, step, chunk, from, to, {"", "mine.lua", line, 0}};
}

ChunkTable table(int members, int chunks, std::vector<ChunkMove> moves) {
    return {"mine", Opcode::all_reduce, members, chunks, std::move(moves), {"", "mine.lua", 1, 0}};
}

void refused(const ChunkTable& t, const std::vector<std::string>& parts) {
    try {
        prove(t);
        FAIL("accepted");
    } catch (const Error& error) {
        INFO(error.what());
        for (const std::string& part : parts) {
            INFO(part);
            CHECK(std::string(error.what()).find(part) != std::string::npos);
        }
    }
}

TransportContract with(TransportContract::Send send, TransportContract::Lanes lanes, int slots = 0) {
    TransportContract contract;
    contract.send = send;
    contract.lanes = lanes;
    contract.slots = slots;
    return contract;
}

}  // namespace

TEST_CASE("every shipped table is proved, on 1 to 17 members", "[plan_chunks]") {
    using C = TransportContract;
    const int members = GENERATE(range(1, 18));
    std::vector<ChunkTable> tables{ring_table(members), recursive_doubling_table(members),
                                   halving_doubling_table(members), tree_table(members)};
    for (const int per_host : {1, 2, 3, 4, members}) {
        std::vector<int> hosts;
        for (int m = 0; m < members; ++m) hosts.push_back(m / per_host);
        tables.push_back(hierarchical_table(hosts));
        for (int m = 0; m < members; ++m) hosts[static_cast<size_t>(m)] = m % per_host;  // hosts take turns
        tables.push_back(hierarchical_table(hosts));
    }
    for (const ChunkTable& t : tables) {
        INFO(t.name << " on " << members);
        prove(t);
        prove_progress(t, with(C::Send::rendezvous, C::Lanes::peer_and_direction));
        prove_progress(t, with(C::Send::buffered, C::Lanes::communicator, 1));
        prove_progress(t, with(C::Send::grouped, C::Lanes::communicator));
    }
}

TEST_CASE("the cost of a table is its algorithm's closed form", "[plan_chunks]") {
    const ChunkCost ring = cost(ring_table(8));
    CHECK(ring.steps == 14);
    CHECK(ring.messages == 14);
    CHECK(ring.chunks == 14);  // of 8: 2 S (P-1)/P
    CHECK(ring.of == 8);
    const ChunkCost doubling = cost(recursive_doubling_table(8));
    CHECK((doubling.steps == 3 && doubling.messages == 3 && doubling.chunks == 3 && doubling.of == 1));
    const ChunkCost halving = cost(halving_doubling_table(8));
    CHECK((halving.steps == 6 && halving.messages == 6 && halving.chunks == 14 && halving.of == 8));
    const ChunkCost tree = cost(tree_table(8));
    CHECK((tree.steps == 6 && tree.messages == 3 && tree.chunks == 3));
    const ChunkCost hosts = cost(hierarchical_table({0, 0, 0, 0, 1, 1, 1, 1}));
    CHECK(hosts.chunks * 8 == 14 * hosts.of);
    CHECK(ring.text() == "14 steps, at most 14 messages and 1.75 S a rank");
}

TEST_CASE("a missing contributor is named with rank, chunk, step and line", "[plan_chunks]") {
    refused(
        table(3, 1,
              {move(Kind::reduce, 0, 0, 1, 0, 4), move(Kind::copy, 1, 0, 0, 1, 5), move(Kind::copy, 1, 0, 0, 2, 6)}),
        {"mine.lua:4", "chunk 0 of rank 0", "the part of rank 2 is missing", "step 0"});
    refused(table(2, 1, {move(Kind::reduce, 0, 0, 1, 0, 4)}), {"mine.lua:1", "chunk 0 of rank 1", "never written"});
}

TEST_CASE("a double contribution is named where it happens", "[plan_chunks]") {
    refused(table(2, 1, {move(Kind::reduce, 0, 0, 1, 0, 4), move(Kind::reduce, 1, 0, 1, 0, 5)}),
            {"mine.lua:5", "step 1", "chunk 0 from rank 1 to rank 0", "adds the part of rank 1 twice"});
}

TEST_CASE("races are refused", "[plan_chunks]") {
    refused(table(2, 1, {move(Kind::copy, 0, 0, 0, 1, 4), move(Kind::copy, 0, 0, 1, 0, 5)}),
            {"a race", "step 0", "chunk 0", "sends it in the same step"});
    refused(table(3, 1, {move(Kind::copy, 0, 0, 0, 2, 4), move(Kind::copy, 0, 0, 1, 2, 5)}),
            {"mine.lua:5", "a race", "mine.lua:4", "both write it"});
    refused(table(3, 1, {move(Kind::copy, 0, 0, 0, 2, 4), move(Kind::reduce, 0, 0, 1, 2, 5)}),
            {"a race", "both write"});
}

TEST_CASE("ranks that add in different orders would drift apart", "[plan_chunks]") {
    auto t = table(3, 2, {});
    for (const auto& [chunk, root, a, b] : {std::tuple{0, 0, 1, 2}, std::tuple{1, 1, 2, 0}}) {
        t.moves.push_back(move(Kind::reduce, 2 * chunk, chunk, a, root, 3));
        t.moves.push_back(move(Kind::reduce, 2 * chunk, chunk, b, root, 4));
        t.moves.push_back(move(Kind::copy, 2 * chunk + 1, chunk, root, a, 5));
        t.moves.push_back(move(Kind::copy, 2 * chunk + 1, chunk, root, b, 6));
    }
    prove(t);
    // Everyone gathers all parts by itself: the same contributors, but another order on each rank.
    auto star = table(3, 1, {});
    for (int to = 0; to < 3; ++to)
        for (int d = 1; d < 3; ++d) star.moves.push_back(move(Kind::reduce, 0, 0, (to + d) % 3, to, to + 1));
    refused(star, {"another order than rank 0", "bits differ"});
}

TEST_CASE("moves that cannot be are refused", "[plan_chunks]") {
    refused(table(2, 1, {move(Kind::copy, 0, 0, 0, 2, 4)}), {"mine.lua:4", "two different ranks from 0 to 1"});
    refused(table(2, 1, {move(Kind::copy, 0, 0, 1, 1, 4)}), {"two different ranks"});
    refused(table(2, 1, {move(Kind::copy, 0, 1, 0, 1, 4)}), {"a chunk from 0 to 0"});
    auto gather = table(2, 2, {move(Kind::copy, 0, 1, 0, 1, 4)});
    gather.collective = Opcode::all_gather;
    refused(gather, {"rank 0 does not have the chunk yet"});
    gather.chunks = 3;
    refused(gather, {"not divisible by 2 ranks"});
}

TEST_CASE("a table that only grouped or buffered sends bring to its end is refused on others", "[plan_chunks]") {
    using C = TransportContract;
    const ChunkTable t = recursive_doubling_table(4);
    prove_progress(t, with(C::Send::rendezvous, C::Lanes::peer_and_direction));
    CHECK_THROWS_WITH(prove_progress(t, with(C::Send::rendezvous, C::Lanes::peer)),
                      Catch::Contains("wait for each other") && Catch::Contains("rank 0 in step 0: sends chunk 0"));
    CHECK_THROWS_WITH(prove_progress(ring_table(3), with(C::Send::rendezvous, C::Lanes::communicator)),
                      Catch::Contains("never ends under rendezvous sends in one lane per communicator"));
    prove_progress(ring_table(3), with(C::Send::rendezvous, C::Lanes::peer));
    prove_progress(tree_table(8), with(C::Send::rendezvous, C::Lanes::communicator));
}

TEST_CASE("neighbouring chunks that go the same way are one message", "[plan_chunks]") {
    const auto messages = messages_of(halving_doubling_table(4), 0);
    REQUIRE(messages.size() == 8);
    CHECK((messages[0].sends && messages[0].first == 2 && messages[0].count == 2 && messages[0].peer == 2));
    CHECK((!messages[1].sends && messages[1].reduces && messages[1].first == 0 && messages[1].count == 2));
    CHECK(!messages[1].staged);  // it sends the other half
    for (const ChunkMessage& m : messages_of(recursive_doubling_table(2), 0)) CHECK(m.staged == !m.sends);
}

TEST_CASE("chunks of a block collective are parts of the members' blocks", "[plan_chunks]") {
    ChunkTable t = table(2, 4, {});
    CHECK(t.range(10, 0) == std::pair<int64_t, int64_t>(0, 3));
    CHECK(t.range(10, 3) == std::pair<int64_t, int64_t>(8, 2));
    t.collective = Opcode::all_gather;  // two blocks of five
    CHECK(t.range(10, 1) == std::pair<int64_t, int64_t>(3, 2));
    CHECK(t.range(10, 2) == std::pair<int64_t, int64_t>(5, 3));
}
