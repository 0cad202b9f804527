// What preflight makes of figures, without measuring any: outliers, rounds of pairs, nodes, who is named.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <random>
#include <set>

#include "orrery/error.h"
#include "run/preflight/outliers.h"
#include "run/preflight/pair_checks.h"
#include "run/preflight/preflight.h"
#include "run/preflight/verdict.h"

using namespace orrery;
using Catch::Matchers::Contains;

namespace {

using Places = std::vector<size_t>;

/// Figures of ranks that are alike but for a little noise, as they would be on a cluster of GPUs.
PreflightFigures healthy(int64_t nodes, int64_t per_node, uint64_t seed = 1) {
    std::mt19937_64 random(seed);
    const auto about = [&](double value) { return value * (1 + std::normal_distribution<double>(0, 0.03)(random)); };
    PreflightFigures figures;
    figures.nodes = nodes;
    figures.host_memory = false;
    for (int64_t rank = 0; rank < nodes * per_node; ++rank) {
        RankFigures one;
        one.host = "n" + std::to_string(rank / per_node);
        one.device = "some accelerator";
        one.node = rank / per_node;
        one.matrix_f32 = about(50e12);
        one.matrix_bf16 = about(500e12);
        one.copy_bytes = about(3e12);
        one.write_bytes = about(1e9);
        one.read_bytes = about(2e9);
        one.sync_s = about(0.002);
        figures.ranks.push_back(one);
    }
    for (int64_t a = 0; a < nodes * per_node; ++a)
        for (int64_t b = a + 1; b < nodes * per_node; ++b) {
            const bool one_node = a / per_node == b / per_node;
            const double rate = one_node ? 400e9 : 45e9;
            figures.pairs.push_back({a, b, one_node, about(one_node ? 3e-6 : 9e-6), about(rate), about(rate),
                                     about(1.9 * rate), 1 << 28, 0});
        }
    for (int64_t node = 0; node < nodes && per_node > 1; ++node) {
        CollectiveFigures one{"all_reduce", Reach::node, node, {}, 1 << 28, 0, about(300e9), 2e-5, 0};
        for (int64_t rank = 0; rank < per_node; ++rank) one.ranks.push_back(node * per_node + rank);
        figures.collectives.push_back(one);
    }
    return figures;
}

PairFigures& pair_of(PreflightFigures& figures, int64_t a, int64_t b) {
    return *std::find_if(figures.pairs.begin(), figures.pairs.end(),
                         [&](const PairFigures& pair) { return pair.a == a && pair.b == b; });
}

/// One line for each finding; "" where all is fit.
std::string named(const PreflightFigures& figures, const ExpectedFigures& expected = {},
                  const PreflightBars& bars = {}) {
    std::string text;
    for (const PreflightFinding& finding : judge(figures, expected, bars)) text += finding.text() + "\n";
    return text;
}

int64_t lines(const std::string& text) { return std::count(text.begin(), text.end(), '\n'); }

}  // namespace

TEST_CASE("an outlier is far from all others, by share and by scatter", "[preflight]") {
    const OutlierRule higher;
    CHECK(median({3, 1, 2}) == 2);
    CHECK(median({4, 1, 2, 3}) == 2.5);
    CHECK(outliers(std::vector<double>{5}, higher).empty());
    CHECK(outliers(std::vector<double>{10, 8}, higher).empty());
    CHECK(outliers(std::vector<double>{10, 3}, higher) == Places{1});
    CHECK(outliers(std::vector<double>{2, 10, 9}, higher) == Places{0});
    CHECK(outliers(std::vector<double>{10, 10, 10, 10, 6.9, 10}, higher) == Places{4});
    CHECK(outliers(std::vector<double>{10, 10, 10, 10, 7.1, 10}, higher).empty());
    // Among values that scatter so much, a low one is no news.
    CHECK(outliers(std::vector<double>{10, 6, 14, 9, 3, 12, 5, 16}, higher).empty());
    CHECK(outliers(std::vector<double>{10, 0, 10}, higher) == Places{1});
    CHECK(outliers(std::vector<double>{10, 5, 0.01, 20, 7}, higher) == Places{2});
    CHECK(outliers(std::vector<double>{0, 0, 0}, higher).empty());
    const OutlierRule lower{false, 0.5, 3, 0.1};
    CHECK(outliers(std::vector<double>{1, 1.1, 3, 0.9}, lower) == Places{2});
    CHECK(outliers(std::vector<double>{0.01, 0.011, 0.09, 0.009}, lower).empty());  // less than `least` away
    std::vector<double> many(200, 10);
    many[77] = 4;
    CHECK(outliers(many, higher) == Places{77});
}

TEST_CASE("noise of a tenth names one in ten thousand, and a fifth of the rest is found", "[preflight]") {
    std::mt19937_64 random(5);
    std::normal_distribution<double> noise(10, 1);
    int named = 0, found = 0, rounds = 0, all = 0;
    for (size_t count = 3; count <= 80; ++count)
        for (int i = 0; i < 20; ++i, ++rounds) {
            std::vector<double> values;
            for (size_t k = 0; k < count; ++k) values.push_back(noise(random));
            all += static_cast<int>(count);
            named += static_cast<int>(outliers(values, {true, 0.6, 3, 0}).size());  // 4 standard deviations
            values[count / 2] = 2;
            const Places places = outliers(values, {true, 0.6, 3, 0});
            found += std::count(places.begin(), places.end(), count / 2) > 0;
        }
    CHECK(named <= all / 10'000);
    CHECK(found >= rounds - rounds / 100);
}

TEST_CASE("each pair has its round, and no node two pairs in one", "[preflight]") {
    const auto shape = GENERATE(std::vector<int64_t>{0, 0}, std::vector<int64_t>{0, 0, 0, 0, 0},
                                std::vector<int64_t>{0, 1, 2}, std::vector<int64_t>{0, 0, 0, 0, 1, 1, 1, 1},
                                std::vector<int64_t>{0, 1, 0, 1, 2, 2}, std::vector<int64_t>{0, 0, 0, 1, 2, 2});
    const auto ranks = static_cast<int64_t>(shape.size());
    std::set<std::pair<int64_t, int64_t>> seen;
    size_t count = 0;
    for (const PairRound& round : pair_rounds(shape)) {
        std::map<int64_t, int> busy;
        for (const auto& [a, b] : round.pairs) {
            CHECK(a < b);
            seen.insert({a, b});
            ++count;
            const int64_t left = shape[static_cast<size_t>(a)], right = shape[static_cast<size_t>(b)];
            ++busy[left];
            if (left != right) ++busy[right];
        }
        for (const auto& [node, times] : busy) CHECK(times == 1);
    }
    CHECK(count == seen.size());
    CHECK(static_cast<int64_t>(seen.size()) == ranks * (ranks - 1) / 2);
}

TEST_CASE("rails have their turn before other places", "[preflight]") {
    const std::vector<PairRound> rounds = pair_rounds({0, 0, 1, 1, 2, 2, 3, 3});
    REQUIRE(rounds.size() == 1 + 3 * 4);
    CHECK(rounds[0].pairs.size() == 4);
    for (size_t i = 1; i <= 6; ++i)
        for (const auto& [a, b] : rounds[i].pairs) CHECK(a % 2 == b % 2);
    const auto some = only(rounds, {{0, 1}, {2, 4}});
    REQUIRE(some.size() == 2);
    CHECK(some[0].pairs == std::vector<std::pair<int64_t, int64_t>>{{0, 1}});
    CHECK(some[1].pairs == std::vector<std::pair<int64_t, int64_t>>{{2, 4}});
}

TEST_CASE("ranks of one host's name share a node unless they have one place", "[preflight]") {
    using Nodes = std::vector<int64_t>;
    CHECK(nodes_of({"a", "a", "b", "b"}, {0, 1, 0, 1}) == Nodes{0, 0, 1, 1});
    CHECK(nodes_of({"a", "b", "a", "b"}, {0, 0, 1, 1}) == Nodes{0, 1, 0, 1});
    CHECK(nodes_of({"a", "a", "a", "a"}, {0, 1, 0, 1}) == Nodes{0, 0, 1, 1});
}

TEST_CASE("machines that are alike are fit", "[preflight]") {
    for (uint64_t seed = 1; seed <= 20; ++seed) {
        CHECK(named(healthy(1, 2, seed)) == "");
        CHECK(named(healthy(1, 8, seed)) == "");
        CHECK(named(healthy(4, 8, seed)) == "");
        CHECK(named(healthy(3, 1, seed)) == "");
    }
}

TEST_CASE("a slow rank is named, by each thing that is slow", "[preflight]") {
    PreflightFigures figures = healthy(2, 4);
    figures.ranks[5].matrix_bf16 = 200e12;
    CHECK_THAT(named(figures), Contains("rank 5 (host n1): matrix rate of bf16: 200 TFLOP/s, 4") &&
                                   Contains("of the other ranks' median of"));
    CHECK(lines(named(figures)) == 1);
    figures.ranks[6].copy_bytes = 1e12;
    figures.ranks[1].storage_problem = "cannot make runs/x: Read-only file system";
    const std::string all = named(figures);
    CHECK_THAT(all, Contains("rank 6 (host n1): memory bandwidth: 1.00 TB/s"));
    CHECK_THAT(all, Contains("rank 1 (host n0): storage: cannot make runs/x: Read-only file system"));
    CHECK(lines(all) == 3);
    figures = healthy(3, 2);  // ranks of a node share its disk, not always evenly
    figures.ranks[0].write_bytes = 0.1e9;
    figures.ranks[1].write_bytes = 1.9e9;
    CHECK(named(figures) == "");
    for (const size_t rank : {2, 3}) figures.ranks[rank].write_bytes = 2e8;
    CHECK_THAT(named(figures), Contains("node 1 (host n1), ranks 2, 3: storage write: 400 MB/s, 20 % of the other"));
    CHECK(lines(named(figures)) == 1);
    // Another kind of device is held against its own.
    figures = healthy(2, 4);
    for (size_t rank = 4; rank < 8; ++rank) {
        figures.ranks[rank].device = "an older accelerator";
        figures.ranks[rank].matrix_bf16 = 150e12;
    }
    CHECK(named(figures) == "");
}

TEST_CASE("a slow link is named with both ends and its direction", "[preflight]") {
    PreflightFigures figures = healthy(1, 4);
    pair_of(figures, 1, 3).back_bytes = 40e9;
    CHECK_THAT(named(figures),
               Contains("link rank 1 (host n0) <- rank 3 (host n0): bandwidth inside a node: 40.0 GB/s"));
    CHECK(lines(named(figures)) == 1);
    figures = healthy(3, 1);
    pair_of(figures, 0, 2).there_bytes = pair_of(figures, 0, 2).back_bytes = 4e9;
    CHECK_THAT(named(figures),
               Contains("link rank 0 (host n0) -- rank 2 (host n2): bandwidth between nodes: 4.00 GB/s"));
    CHECK(lines(named(figures)) == 1);
    pair_of(figures, 1, 2).latency_s = 2e-3;
    CHECK_THAT(named(figures), Contains("link rank 1 (host n1) -- rank 2 (host n2): latency between nodes: 2 ms"));
    pair_of(figures, 1, 2).latency_s = 1e-7;  // nobody is named for being fast
    pair_of(figures, 0, 2).there_bytes = pair_of(figures, 0, 2).back_bytes = 60e9;
    CHECK(named(figures) == "");
    // Of one link nothing can be said, and of two fast and one slow one all.
    figures = healthy(2, 1);
    pair_of(figures, 0, 1).there_bytes = 1e6;
    CHECK(named(figures) == "");
    CHECK_THAT(named(figures, {.fabric_bytes = 50e9}),
               Contains("link rank 0 (host n0) -> rank 1 (host n1): bandwidth one way: 1.00 MB/s, 0 % of the expected "
                        "50.0 GB/s; the minimum is 80 %"));
}

TEST_CASE("a rank all of whose links are slow is named and its links are not", "[preflight]") {
    for (const int64_t count : {3, 4, 8}) {
        PreflightFigures figures = healthy(count, 1);
        for (PairFigures& pair : figures.pairs)
            if (pair.a == 1 || pair.b == 1) pair.there_bytes = pair.back_bytes = 1e9;
        const std::string text = named(figures);
        CHECK_THAT(text, Contains("rank 1 (host n1): bandwidth of all its links between nodes: the best of them has "
                                  "1.00 GB/s, 2 % of the other ranks' median"));
        CHECK(lines(text) == 1);
    }
}

TEST_CASE("bars come from what is expected, and from data sheets", "[preflight]") {
    PreflightFigures figures = healthy(2, 4);
    for (RankFigures& one : figures.ranks) {
        one.device = "NVIDIA H100 80GB HBM3";
        one.matrix_bf16 = 700e12;
    }
    for (PairFigures& pair : figures.pairs)
        if (pair.one_node) {
            pair.there_bytes = pair.back_bytes = 401e9;
            pair.both_bytes = 801e9;
        }
    CHECK(named(figures) == "");
    figures.ranks[2].matrix_bf16 = 690e12;  // 69.8 %
    pair_of(figures, 4, 6).there_bytes = 399e9;
    pair_of(figures, 5, 7).both_bytes = 790e9;
    const std::string text = named(figures);
    CHECK_THAT(text, Contains("rank 2 (host n0): matrix rate of bf16: 690 TFLOP/s, 70 % of the expected 989 TFLOP/s"));
    CHECK_THAT(
        text,
        Contains("rank 4 (host n1) -- rank 6 (host n1): bandwidth one way: 399 GB/s, 89 % of the expected 450 GB/s"));
    CHECK_THAT(text, Contains("rank 5 (host n1) -- rank 7 (host n1): bandwidth both ways at once: 790 GB/s"));
    CHECK(lines(text) == 3);
    ExpectedFigures said;
    said.matrix_bf16 = 2000e12;
    CHECK(lines(named(figures, said)) == 8 + 2);
    // A node of which a part is not said is not held against it; of a link between two nodes one end's is enough.
    said = {};
    said.matrix_f32 = 200e12;
    said.unsaid = {{&ExpectedFigures::matrix_f32, 1, 2}};
    CHECK(lines(named(healthy(2, 4), said)) == 4);
    CHECK_THAT(named(healthy(2, 4), said), Contains("rank 3 (host n0): matrix rate of f32") && !Contains("(host n1)"));
    said = {};
    said.fabric_bytes = 100e9;
    said.unsaid = {{&ExpectedFigures::fabric_bytes, 1, 2}};
    CHECK_THAT(named(healthy(2, 2), said), Contains("4 of the 4 links between nodes are slow, this one most"));
    said.unsaid = {{&ExpectedFigures::fabric_bytes, 0, 2}};
    CHECK(named(healthy(2, 2), said) == "");
    // Where a whole fabric is slow one line says so.
    said = {};
    said.fabric_bytes = 100e9;
    CHECK_THAT(named(healthy(4, 2), said), Contains("24 of the 24 links between nodes are slow, this one most"));
    CHECK(lines(named(healthy(4, 2), said)) == 1);
    said = {};
    said.storage_write_bytes = 20e9;
    CHECK_THAT(named(healthy(1, 4), said),
               Contains("all ranks together: storage write: ") && Contains("of the expected 20.0 GB/s"));
}

TEST_CASE("a node is named by its collectives, and whoever sends wrong bytes", "[preflight]") {
    PreflightFigures figures = healthy(4, 2);
    figures.collectives[2].bus_bytes = 30e9;
    CHECK_THAT(named(figures), Contains("node 2 (host n2), ranks 4, 5: all_reduce: 30.0 GB/s"));
    figures = healthy(2, 2);
    pair_of(figures, 0, 3).wrong_bytes = 4;
    figures.collectives[1].wrong = 9;
    const std::string text = named(figures);
    CHECK_THAT(text, Contains("link rank 0 (host n0) -- rank 3 (host n1): data: 4 bytes were corrupted in transit"));
    CHECK_THAT(text, Contains("node 1 (host n1), ranks 2, 3: all_reduce: 9 wrong elements"));
    for (const PreflightFinding& finding : judge(figures, {}, {})) CHECK_FALSE(finding.again);
}

TEST_CASE("data sheets are found by a device's name", "[preflight]") {
    CHECK(known_figures("NVIDIA H100 PCIe").matrix_bf16 == 756e12);
    CHECK(known_figures("NVIDIA H100 PCIe").node_link_bytes == 0);
    CHECK(known_figures("NVIDIA A100-SXM4-80GB").node_link_bytes == 300e9);
    CHECK(known_figures("NVIDIA A100-SXM4-40GB").memory_bytes == 1555e9);
    CHECK(known_figures("NVIDIA A100 80GB PCIe").memory_bytes == 1935e9);
    CHECK(known_figures("NVIDIA GB200").matrix_bf16 == 2450e12);
    CHECK(known_figures("NVIDIA GH200 480GB").memory_bytes == 4000e9);
    CHECK(known_figures("EPYC, 2 threads").matrix_bf16 == 0);
}
