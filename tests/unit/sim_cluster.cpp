#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "config/load.h"
#include "folders.h"
#include "sim/cluster/mapping.h"

using namespace orrery;

namespace {

const std::string sound = R"([accelerator.a]
generation = "hopper"
memory_gib = 80
memory_gb_s = 3000
[accelerator.a.dense_tflops]
bf16 = 1000
[node.n]
accelerator = "a"
accelerators = 8
count = 4
[node.n.scale_up]
kind = "nvswitch"
gb_s = 400
[node.n.nics]
kind = "infiniband"
count = 8
gb_s = 50
[fabric]
kind = "single_switch"
)";

Cluster parse(const std::string& text) {
    Config file = parse_toml(text, "c.toml");
    return Cluster(file);
}

std::string with(std::string text, const std::string& from, const std::string& to) {
    const size_t at = text.find(from);
    REQUIRE(at != std::string::npos);
    return text.replace(at, from.size(), to);
}

std::string problem(const std::string& text) {
    try {
        parse(text);
    } catch (const Error& error) {
        return error.what();
    }
    return "";
}

void refused(const std::string& from, const std::string& to, const std::string& place, const std::string& said) {
    const std::string found = problem(with(sound, from, to));
    INFO(found);
    CHECK(found.find(place) != std::string::npos);
    CHECK(found.find(said) != std::string::npos);
}

}  // namespace

TEST_CASE("cluster: what a file says") {
    const Cluster cluster = parse(sound);
    CHECK(cluster.accelerators() == 32);
    CHECK(cluster.kinds[0].accelerator.dense_flops.at("bf16") == 1e15);
    CHECK(cluster.kinds[0].scale_up.bytes_s == 400e9);
    CHECK(cluster.with_nodes(2048).accelerators() == 16384);
    CHECK(cluster.text() == "4 nodes of 8 a (n), one switch");
    const Cluster::Place place = cluster.place(13);
    CHECK(place.node == 1);
    CHECK(place.local == 5);
    CHECK(place.nic == 5);
}

TEST_CASE("cluster: a domain of several nodes, kinds of nodes, accelerators that share a NIC") {
    std::string text = with(sound, "gb_s = 400", "gb_s = 400\ndomain_accelerators = 16");
    text = with(text, "count = 8\ngb_s = 50", "count = 4\ngb_s = 50");
    text = with(text, "[fabric]",
                "[node.m]\naccelerator = \"a\"\naccelerators = 2\ncount = 3\n[node.m.scale_up]\n"
                "kind = \"pcie\"\ngb_s = 20\n[node.m.nics]\nkind = \"ethernet\"\ncount = 1\n"
                "gb_s = 10\n[fabric]");
    const Cluster cluster = parse(text);
    CHECK(cluster.accelerators() == 38);
    CHECK(cluster.place(15).domain == 0);
    CHECK(cluster.place(16).domain == 1);
    CHECK(cluster.place(3).nic == 1);
    CHECK(cluster.place(32).node == 4);
    CHECK(cluster.place(34).domain == 3);
    CHECK(cluster.kind_of(37).name == "m");
    CHECK_THROWS_AS(cluster.place(38), Error);
    CHECK_THROWS_WITH(cluster.with_nodes(5), Catch::Contains("2 kinds"));
}

TEST_CASE("cluster: bad files are refused with their place") {
    refused("count = 4", "count = 0", "c.toml:10:9", "node.n.count is 0, expected at least 1");
    refused("gb_s = 400", "gb_s = -1", "c.toml:13:8", "node.n.scale_up.gb_s is -1, expected more than 0");
    refused("memory_gib = 80\n", "", "c.toml:1", "missing accelerator.a.memory_gib");
    // A misspelt key is named at its place, not the one that is missing for it.
    refused("memory_gib = 80\n", "memory_gb = 80\n", "c.toml:3:1", "unknown key \"memory_gb\" in [accelerator.a]");
    refused("memory_gb_s", "memory_gbs", "c.toml:4:1", "did you mean \"memory_gb_s\"?");
    refused("[node.n.scale_up]", "[node.n.scaleup]", "c.toml", "unknown key \"scaleup\" in [node.n]");
    refused("[fabric]", "[fabrik]", "c.toml", "did you mean \"fabric\"?");
    refused("gb_s = 50", "gbps = 400", "c.toml:17:8", "unknown key \"gbps\" in [node.n.nics]");
    // Numbers that no machine has.
    refused("bf16 = 1000", "bf16 = 1e15", "c.toml:6", "at most 1e+06; check the unit, which the key's name gives");
    refused("memory_gib = 80", "memory_gib = inf", "c.toml:3",
            "accelerator.a.memory_gib is the number inf, expected a finite");
    refused("memory_gib = 80", "memory_gib = nan", "c.toml:3", "expected a finite");
    refused("count = 4", "count = 4000000000000", "c.toml:10", "node.n.count is 4000000000000, expected at most");
    refused("gb_s = 400", "gb_s = 400\nspeed = 3", "c.toml:14", "unknown key \"speed\" in [node.n.scale_up]");
    refused("\"nvswitch\"", "\"nvswich\"", "c.toml:12:8", "did you mean \"nvswitch\"?");
    refused("accelerator = \"a\"", "accelerator = \"b\"", "c.toml:8", "it can be: a");
    refused("bf16 = 1000", "bf17 = 1000", "c.toml:6", "unknown dtype \"bf17\"");
    refused("gb_s = 400", "gb_s = 400\ndomain_accelerators = 12", "c.toml:14", "expected a multiple of 8");
    refused("\"nvswitch\"", "\"pcie\"\nnvls = true", "c.toml:13:8", "NVLS needs an NVSwitch");
    refused("[node.n.nics]\nkind = \"infiniband\"\ncount = 8\ngb_s = 50\n", "", "c.toml:7", "missing [node.n.nics]");
    refused("[fabric]\nkind = \"single_switch\"\n", "", "c.toml", "missing fabric");
    refused("\"single_switch\"", "\"fat_tree\"\nnodes_per_leaf = 4\nleaf_oversubscription = 0.5", "c.toml:21:25",
            "expected at least 1");
    refused("\"single_switch\"", "\"fat_tree\"\nnodes_per_leaf = 4\nnodes_per_pod = 2", "c.toml:21:17",
            "more than the 4 nodes of the level below");
}

TEST_CASE("cluster: the shipped ones are sound") {
    int read = 0;
    for (const auto& entry : std::filesystem::directory_iterator(in_source("configs/clusters"))) {
        if (entry.path().extension() != ".toml") continue;
        INFO(entry.path());
        Config file = load_toml(entry.path());
        const Cluster cluster(file);
        CHECK(cluster.accelerators() >= 1);
        CHECK_FALSE(cluster.name.empty());
        ++read;
    }
    CHECK(read >= 8);
}

TEST_CASE("mapping: innermost axes lie in a node, unless another order is asked for") {
    const Cluster cluster = parse(sound);
    const Mesh mesh({{"pp", 2}, {"dp", 2}, {"tp", 8}});
    const Mapping plain(cluster, mesh);
    CHECK(plain.slot(9) == 9);
    CHECK(plain.text() == "tp=8 in a node, dp=2 over 2 nodes, pp=2 over 4 nodes");
    const Mapping pipeline(cluster, mesh, {"pp", "tp"});
    CHECK(pipeline.slot(16) == 1);  // pp 1, dp 0, tp 0
    CHECK(pipeline.slot(1) == 2);   // tp 1
    CHECK(pipeline.slot(8) == 16);  // dp 1
    CHECK(pipeline.text() == "pp=2 in a node, tp=8 over 2 nodes, dp=2 over 4 nodes");
}

TEST_CASE("mapping: what cannot be is refused") {
    const Cluster cluster = parse(sound);
    CHECK_THROWS_WITH(Mapping(cluster, Mesh({{"dp", 5}, {"tp", 8}})),
                      Catch::Contains("40 ranks") && Catch::Contains("32 accelerators: 8 missing"));
    const Mesh mesh({{"dp", 4}, {"tp", 8}});
    CHECK_THROWS_WITH(Mapping(cluster, mesh, {"pp"}),
                      Catch::Contains("unknown axis \"pp\"") && Catch::Contains("dp, tp"));
    CHECK_THROWS_WITH(Mapping(cluster, mesh, {"tp", "tp"}), Catch::Contains("duplicate"));
}

TEST_CASE("cluster: whose rates an accelerator has is a name that is known, or a part is given") {
    const std::string place = "memory_gib = 80\n";
    CHECK(parse(with(sound, place, place + "measured_as = \"H100-80G-SXM\"\n")).kinds[0].accelerator.measured_as ==
          "H100-80G-SXM");
    refused(place, place + "measured_as = \"H100-80G-SMX\"\n", "c.toml:4",
            "accelerator.a.measured_as is \"H100-80G-SMX\", for which no rate is known");
    refused(place, place + "measured_as = \"H100-80G-SMX\"\n", "c.toml:4", "did you mean \"H100-80G-SXM\"?");
    refused(place, place + "measured_as = \"H100-80G-SXM\"\nmatrix_share = 0.7\n", "c.toml:5", "leave one out");
}

TEST_CASE("cluster: accelerators of many nodes can be counted") {
    const Cluster cluster = parse(sound);
    CHECK(cluster.with_nodes(1'000'000).accelerators() == 8'000'000);
    for (const int64_t count : {int64_t{-1}, int64_t{0}, int64_t{1'000'001}, int64_t{1} << 62})
        CHECK_THROWS_WITH(cluster.with_nodes(count), Catch::Contains("expected 1 to 1000000"));
}
