#include <fmt/format.h>

#include <catch2/catch.hpp>

#include "config/load.h"
#include "sim/cluster_prices.h"
#include "sim/predict.h"
#include "sim/simulate.h"

using namespace orrery;

namespace {

/// A kind of node with 4 accelerators.
struct Kind {
    std::string name;
    double bf16_tflops = 1000, memory_gib = 80, link_gb_s = 400, nic_gb_s = 50;
    int64_t count = 1;
};

const Kind fast{"fast"};
const Kind slow{"slow", 200, 40};

Cluster cluster_of(const std::vector<Kind>& kinds, const std::string& fabric = "kind = \"single_switch\"") {
    std::string text;
    for (const Kind& kind : kinds)
        text += fmt::format(
            "[accelerator.{0}]\ngeneration = \"hopper\"\nmemory_gib = {2}\nmemory_gb_s = 3000\n"
            "dense_tflops = {{ bf16 = {1} }}\n[node.{0}]\naccelerator = \"{0}\"\naccelerators = 4\ncount = {5}\n"
            "scale_up = {{ kind = \"nvswitch\", gb_s = {3} }}\n"
            "nics = {{ kind = \"infiniband\", count = 4, gb_s = {4} }}\n",
            kind.name, kind.bf16_tflops, kind.memory_gib, kind.link_gb_s, kind.nic_gb_s, kind.count);
    Config file = parse_toml(text + "[fabric]\n" + fabric + "\n", "c.toml");
    return Cluster(file);
}

Instruction product(RankClass& c, std::vector<int> waits) {
    constexpr int64_t rows = 4096, inner = 4096, columns = 1024;
    c.kernels = {{"matmul",
                  {},
                  {{DType::bf16, {rows, inner}}, {DType::bf16, {inner, columns}}},
                  {{DType::bf16, {rows, columns}}}}};
    Instruction i;
    i.kernel = 0;
    i.waits = std::move(waits);
    return i;
}

Instruction all_reduce(AxisId axis, int wait) {
    Operand operand;
    operand.type = {DType::u8, {int64_t{64} << 20}};
    Instruction i;
    i.opcode = Opcode::all_reduce;
    i.queue = 1;
    i.axis = axis;
    i.operands = {operand, operand};
    i.waits = {wait};
    return i;
}

/// Products with an all_reduce over tp and one over dp between them, on `dp` times 2 ranks of one class.
Plan plan_of(int64_t dp) {
    Plan plan;
    plan.mesh = Mesh({{"dp", dp}, {"tp", 2}});
    RankClass c;
    for (int64_t rank = 0; rank < plan.mesh.ranks(); ++rank) c.ranks.push_back(rank);
    c.stream = {product(c, {}), all_reduce(1, 0), product(c, {1}), all_reduce(0, 2), product(c, {3})};
    plan.classes = {c};
    return plan;
}

Simulated played(const Cluster& cluster, const Plan& plan, SimulateOptions options = {}) {
    TransportContract queued;
    queued.queued = true;
    const Constants constants;
    const Mapping mapping(cluster, plan.mesh);
    const SoftwareRun software;
    ClusterPrices prices(cluster, plan.mesh, mapping, constants, software);
    return simulate(plan, {{"dp", queued}, {"tp", queued}}, prices, options);
}

const ActorTime& with(const Simulated& run, int64_t rank) {
    for (const ActorTime& time : run.actors)
        if (time.rank == rank) return time;
    FAIL("no actor begins with rank " << rank);
    return run.actors.front();
}

}  // namespace

TEST_CASE("kinds of node: each rank's kernels are priced by its own, and the fast ones wait") {
    const Plan plan = plan_of(4);
    const Simulated alone = played(cluster_of({fast}), plan_of(2));
    const double slow_alone = played(cluster_of({slow}), plan_of(2)).actors.at(0).computing;
    REQUIRE(alone.actors.size() == 1);
    REQUIRE(slow_alone > 3 * alone.actors[0].computing);
    const Simulated first = played(cluster_of({fast, slow}), plan), last = played(cluster_of({slow, fast}), plan);
    for (const Simulated* run : {&first, &last}) {
        REQUIRE(run->actors.size() == 2);
        const int64_t of_fast = run == &first ? 0 : 4;
        CHECK(with(*run, of_fast).ranks == 4);
        CHECK(with(*run, of_fast).computing == Approx(alone.actors[0].computing));
        CHECK(with(*run, 4 - of_fast).computing == Approx(slow_alone));
        CHECK(with(*run, of_fast).waiting == Approx(slow_alone - alone.actors[0].computing));
        CHECK(with(*run, 4 - of_fast).waiting == Approx(0).margin(1e-9));
    }
    CHECK(first.step_s == Approx(last.step_s).epsilon(1e-9));
    // Links are alike, so that the slow nodes alone decide.
    Kind two = slow;
    two.count = 2;
    CHECK(first.step_s == Approx(played(cluster_of({two}), plan).step_s).epsilon(1e-9));
    SimulateOptions each;
    each.each_rank = true;
    CHECK(played(cluster_of({fast, slow}), plan, each).step_s == Approx(first.step_s).epsilon(1e-9));
}

TEST_CASE("kinds of node: what is alike under two names is one kind") {
    const Plan plan = plan_of(4);
    Kind two = fast, again = fast;
    two.count = 2;
    again.name = "again";
    const Simulated one = played(cluster_of({two}), plan);
    const Simulated same = played(cluster_of({fast, again}), plan);
    CHECK(same.step_s == one.step_s);
    CHECK(same.actors.size() == 1);
    // Memory changes no time; what could is told apart, and comes to the same where it does not.
    again.memory_gib = 160;
    CHECK(played(cluster_of({fast, again}), plan).actors.size() == 1);
    Cluster apart = cluster_of({fast, again});
    apart.kinds[1].accelerator.dense_flops["fp8"] = 1e15;
    const Simulated told = played(apart, plan);
    CHECK(told.actors.size() == 2);
    CHECK(told.step_s == Approx(one.step_s).epsilon(1e-9));
    // A kind on which no rank sits is no matter.
    CHECK(played(cluster_of({two, slow}), plan).step_s == one.step_s);
    CHECK(played(cluster_of({two, slow}), plan).actors.size() == 1);
}

TEST_CASE("kinds of node: links are those of the group's own kind, and of both the worse where it spans them") {
    const Plan plan = plan_of(4);
    Kind narrow = fast, two = fast;
    narrow.name = "narrow";
    narrow.link_gb_s = 100;
    two.count = 2;
    const double before = played(cluster_of({two}), plan).step_s;
    const Simulated first = played(cluster_of({fast, narrow}), plan), last = played(cluster_of({narrow, fast}), plan);
    CHECK(first.step_s > 1.05 * before);
    CHECK(first.step_s == Approx(last.step_s).epsilon(1e-9));
    CHECK(with(first, 0).exposed.at(1) < 0.5 * with(first, 4).exposed.at(1));
    CHECK(with(first, 0).exposed.at(1) == Approx(with(last, 4).exposed.at(1)));
    Kind far = fast;
    far.name = "far";
    far.nic_gb_s = 12.5;
    const Simulated ends = played(cluster_of({fast, far}), plan), begins = played(cluster_of({far, fast}), plan);
    CHECK(ends.step_s > 1.05 * before);
    CHECK(ends.step_s == Approx(begins.step_s).epsilon(1e-9));
}

TEST_CASE("kinds of node: a collective through mapped buffers takes its slowest link's time, in any order") {
    Kind narrow = fast;
    narrow.name = "narrow";
    narrow.link_gb_s = 10;  // slower than the NICs
    Plan plan;
    plan.mesh = Mesh({{"tp", 8}});
    RankClass c;
    for (int64_t rank = 0; rank < 8; ++rank) c.ranks.push_back(rank);
    c.stream = {product(c, {}), all_reduce(0, 0), product(c, {1})};
    plan.classes = {c};
    SimulateOptions mapped;
    mapped.mapped = {{0, 1, 0}};
    const auto step = [&](const std::vector<Kind>& kinds) {
        const Cluster cluster = cluster_of(kinds);
        const Mapping mapping(cluster, plan.mesh);
        const Constants constants;
        const SoftwareRun software;
        ClusterPrices prices(cluster, plan.mesh, mapping, constants, software);
        TransportContract queued;
        queued.queued = true;
        return simulate(plan, {{"tp", queued}}, prices, mapped).step_s;
    };
    CHECK(step({fast, narrow}) == Approx(step({narrow, fast})).epsilon(1e-9));
    Kind two = fast;
    two.count = 2;
    CHECK(step({fast, narrow}) > 1.5 * step({two}));
}

TEST_CASE("kinds of node: the bundle of a block has the rate of the NICs below it, whoever asks first") {
    Kind far = fast;
    far.name = "far";
    far.nic_gb_s = 10;
    for (const auto& [kinds, rails, expected] : {std::tuple{std::vector{fast, far}, false, 4 * 60e9 / 3},
                                                 {std::vector{far, fast}, false, 4 * 60e9 / 3},
                                                 {std::vector{fast, far}, true, 60e9 / 3}}) {
        const Cluster cluster =
            cluster_of(kinds, fmt::format("kind = \"fat_tree\"\nrail_optimized = {}\nnodes_per_leaf = 2\n"
                                          "leaf_oversubscription = 3",
                                          rails));
        for (const int64_t slot : {0, 4}) {
            Links links(cluster, Constants());
            CHECK(links.capacity(links.bundle(0, slot, 0, true)) == Approx(expected));
        }
    }
}

TEST_CASE("kinds of node: the rate that MFU is told over and the price are those of all ranks' accelerators") {
    const Cluster both = cluster_of({fast, slow});
    CHECK(mean_rate(both, 8, "bf16") == Approx(600e12));
    CHECK(mean_rate(cluster_of({slow, fast}), 8, "bf16") == Approx(600e12));
    CHECK(mean_rate(both, 4, "bf16") == 1000e12);
    CHECK(mean_rate(both, 6, "bf16") == Approx((4 * 1000e12 + 2 * 200e12) / 6));
    CHECK_THROWS_WITH(mean_rate(both, 8, "fp8"), Catch::Contains("no rate for matrix products of fp8"));
    Cluster priced = both;
    priced.kinds[0].accelerator.price_hour = 3600;
    CHECK(price_per_s(priced, 4) == 4);
    CHECK(price_per_s(priced, 5) == 0);  // the price of one is unknown
    priced.kinds[1].accelerator.price_hour = 7200;
    CHECK(price_per_s(priced, 5) == 6);
    CHECK(Mapping(both, Mesh({{"dp", 6}})).text() == "dp=6 over 2 nodes; 4 ranks on fast (fast), 2 on slow (slow)");
    CHECK(Mapping(cluster_of({fast}), Mesh({{"dp", 4}})).text() == "dp=4 in a node");
}
