#include <catch2/catch.hpp>

#include "cli/preflight/cluster_figures.h"
#include "cli/preflight/preflight.h"
#include "config/load.h"
#include "folders.h"

using namespace orrery;

namespace {

ExpectedFigures shipped(const std::string& name) {
    Config file = load_toml(in_source("configs/clusters/" + name));
    return figures_of(Cluster(file));
}

}  // namespace

TEST_CASE("preflight: what a cluster's file says, and flags over it") {
    const ExpectedFigures h100 = shipped("h100.toml");
    CHECK(h100.matrix_bf16 == 989e12);
    CHECK(h100.matrix_f32 == 67e12);
    CHECK(h100.memory_bytes == 3350e9);
    CHECK(h100.node_link_bytes == 450e9);
    CHECK(h100.fabric_bytes == 50e9);
    CHECK(h100.storage_write_bytes == 0);
    const ExpectedFigures over = read_expected({"fabric_gb_s=25", "storage_read_gb_s=3"}, h100);
    CHECK(over.fabric_bytes == 25e9);
    CHECK(over.storage_read_bytes == 3e9);
    CHECK(over.memory_bytes == 3350e9);
    CHECK(shipped("this_machine.toml").fabric_bytes == 0);
}

TEST_CASE("preflight: of several kinds of nodes the least that is said, of several NICs a rank's own") {
    const std::string kinds = R"(
[accelerator.a]
memory_gib = 80
memory_gb_s = 3000
dense_tflops = { bf16 = 900 }
[accelerator.b]
memory_gib = 40
memory_gb_s = 2000
dense_tflops = { bf16 = 300, f32 = 20 }
[node.m]
accelerator = "a"
accelerators = 4
count = 1
scale_up = { kind = "nvswitch", gb_s = 300 }
nics = { kind = "infiniband", count = 8, gb_s = 25 }
[node.n]
accelerator = "b"
accelerators = 8
count = 1
scale_up = { kind = "nvswitch", gb_s = 400 }
nics = { kind = "infiniband", count = 2, gb_s = 60 }
[fabric]
kind = "single_switch"
[storage]
read_gb_s = 7
write_gb_s = 5
)";
    Config file = parse_toml(kinds, "c.toml");
    const ExpectedFigures least = figures_of(Cluster(file));
    CHECK(least.matrix_bf16 == 300e12);
    CHECK(least.matrix_f32 == 20e12);  // of the one that says it, and of the other nothing
    CHECK(expected_of(least, "cpu", 0).matrix_f32 == 0);
    CHECK(expected_of(least, "cpu", 1).matrix_f32 == 20e12);
    CHECK(expected_of(least, "cpu", 0).matrix_bf16 == 300e12);
    CHECK(expected_of(least, "cpu").matrix_f32 == 20e12);
    CHECK(expected_of(read_expected({"matrix_f32_tflops=5"}, least), "cpu", 0).matrix_f32 == 5e12);
    CHECK(least.memory_bytes == 2000e9);
    CHECK(least.node_link_bytes == 300e9);
    CHECK(least.fabric_bytes == 50e9);
    CHECK(least.storage_read_bytes == 7e9);
    CHECK(least.storage_write_bytes == 5e9);
}

TEST_CASE("preflight: what is held against no figure is said, with the nodes that it is of") {
    PreflightReport report;
    report.figures.nodes = 2;
    for (int64_t rank = 0; rank < 4; ++rank) {
        RankFigures one;
        one.host = rank < 2 ? "a" : "b", one.device = "cpu", one.node = rank / 2;
        one.matrix_f32 = 30e12, one.copy_bytes = 1e12, one.write_bytes = 1e9;
        report.figures.ranks.push_back(one);
    }
    report.expected_from = "c.toml";
    report.expected.matrix_f32 = 20e12;
    report.expected.unsaid = {{&ExpectedFigures::matrix_f32, 1, 2}};
    CHECK_THAT(preflight_text(report),
               Catch::Contains("expected (c.toml): matrix_f32_tflops 20\n") &&
                   Catch::Contains("held against no figure: matrix_f32_tflops of node 1, memory_gb_s, "
                                   "storage_write_gb_s\n"));
    CHECK_THAT(preflight_json(report), Catch::Contains("\"matrix_f32_tflops of node 1\""));
    report.expected.unsaid = {{&ExpectedFigures::matrix_f32, 0, 2}};
    CHECK_THAT(preflight_text(report), Catch::Contains("expected (c.toml): nothing of what was measured\n") &&
                                           Catch::Contains("held against no figure: matrix_f32_tflops, memory_gb_s"));
    CHECK_THAT(preflight_text(report),
               Catch::Contains("fit, but ranks were only compared with each other: no expected figures; give "
                               "--cluster FILE or"));
    CHECK_THAT(preflight_json(report), Catch::Contains("\"compared_with\":\"other ranks\""));
    report.expected.unsaid.clear();
    CHECK_THAT(preflight_json(report), Catch::Contains("\"compared_with\":\"expected figures\""));
    report.expected.memory_bytes = 1e12;
    report.expected.storage_write_bytes = 1e9;
    CHECK_THAT(preflight_text(report), !Catch::Contains("held against no figure"));
}
