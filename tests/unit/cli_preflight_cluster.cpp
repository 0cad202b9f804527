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

TEST_CASE("preflight: of several kinds of nodes the least, of several NICs a rank's own") {
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
    CHECK(least.matrix_f32 == 0);  // nothing is said of one of them
    CHECK(least.memory_bytes == 2000e9);
    CHECK(least.node_link_bytes == 300e9);
    CHECK(least.fabric_bytes == 50e9);
    CHECK(least.storage_read_bytes == 7e9);
    CHECK(least.storage_write_bytes == 5e9);
}
