#include <fmt/format.h>
#include <catch2/catch.hpp>

#include "config/load.h"
#include "folders.h"
#include "sim/cluster/wires.h"

using namespace orrery;

namespace {

constexpr int64_t mib = 1024 * 1024;

/// Every rate is reached whole.
Constants whole() {
    Constants out;
    for (size_t i = 0; i < out.all().size(); ++i) {
        const std::string& name = out.all()[i].name;
        if (name.starts_with("nvlink.") || name.starts_with("net.") || name == "pcie" || name == "all_to_all")
            out.set(i, 1);
    }
    return out;
}

struct Racks {
    int nodes = 1;
    int accelerators = 8;
    int nics = 8;
    std::string fabric = "kind = \"single_switch\"";
    bool nvls = false;
};

Cluster cluster_of(const Racks& shape) {
    Config file = parse_toml(
        fmt::format("[accelerator.a]\ngeneration = \"hopper\"\nmemory_gib = 80\nmemory_gb_s = 3000\n"
                    "[accelerator.a.dense_tflops]\nbf16 = 1000\n[node.n]\naccelerator = \"a\"\naccelerators = {}\n"
                    "count = {}\n[node.n.scale_up]\nkind = \"nvswitch\"\ngb_s = 100\nnvls = {}\n[node.n.nics]\n"
                    "kind = \"infiniband\"\ncount = {}\ngb_s = 10\n[fabric]\n{}\n",
                    shape.accelerators, shape.nodes, shape.nvls, shape.nics, shape.fabric),
        "c.toml");
    return Cluster(file);
}

/// A cluster, and the wires of a mesh on it.
struct Bench {
    Bench(const Racks& shape, Mesh of, NcclSettings settings = {})
        : cluster(cluster_of(shape)),
          mesh(std::move(of)),
          mapping(cluster, mesh),
          wires(cluster, mesh, mapping, constants, settings) {}

    Demand ask(Opcode opcode, const std::string& axis, int64_t bytes, bool all = false) {
        const AxisId id = *mesh.over(axis);
        const std::vector<int64_t> group = mesh.group(0, id);
        std::vector<int64_t> alike = group;
        if (all) {
            alike.clear();
            for (int64_t rank = 0; rank < mesh.ranks(); ++rank) alike.push_back(rank);
        }
        return wires.collective(opcode, id, bytes, group, alike);
    }
    /// Of the link that takes longest.
    double wire_s(const Demand& demand) const {
        double most = 0;
        for (const Demand::Load& load : demand.loads)
            most = std::max(most, load.amount / wires.capacity(load.resource));
        return most;
    }

    Cluster cluster;
    Mesh mesh;
    Mapping mapping;
    Constants constants = whole();
    ClusterWires wires;
};

const NcclSettings ring{.algorithm = NcclAlgorithm::ring, .nvls = true};
const NcclSettings tree{.algorithm = NcclAlgorithm::tree, .nvls = true};

}  // namespace

TEST_CASE("wires: a ring in a node takes 2 S (P-1)/P over the link's rate") {
    for (const int64_t ranks : {2, 3, 8}) {
        Bench bench({}, Mesh({{"dp", ranks}}), ring);
        const double part = static_cast<double>(ranks - 1) / static_cast<double>(ranks);
        const int64_t bytes = 1024 * mib;
        const Demand reduce = bench.ask(Opcode::all_reduce, "dp", bytes);
        CHECK(reduce.how == "ring, Simple");
        CHECK(bench.wire_s(reduce) == Approx(2 * static_cast<double>(bytes) * part / 100e9).epsilon(1e-12));
        const Demand gather = bench.ask(Opcode::all_gather, "dp", bytes);
        CHECK(bench.wire_s(gather) == Approx(static_cast<double>(bytes) * part / 100e9).epsilon(1e-12));
        CHECK(bench.wire_s(bench.ask(Opcode::reduce_scatter, "dp", bytes)) == bench.wire_s(gather));
    }
}

TEST_CASE("wires: a group of one, or nothing to send, costs nothing") {
    Bench bench({}, Mesh({{"dp", 1}, {"tp", 8}}));
    CHECK(bench.wires.collective(Opcode::all_reduce, 0, mib, {0}, {0}).loads.empty());
    const Demand none = bench.ask(Opcode::all_reduce, "tp", 0);
    CHECK(none.loads.empty());
    CHECK(none.fixed_s == 0);
}

TEST_CASE("wires: groups that send at once share the NICs of their nodes") {
    // Two nodes of 8, one NIC each: tp in a node, eight groups of dp across.
    const Racks one_nic{.nodes = 2, .nics = 1};
    Bench bench(one_nic, Mesh({{"dp", 2}, {"tp", 8}}), ring);
    const int64_t bytes = 512 * mib;
    const double alone = bench.wire_s(bench.ask(Opcode::all_reduce, "dp", bytes));
    CHECK(alone == Approx(static_cast<double>(bytes) / 10e9).epsilon(1e-12));
    CHECK(bench.wire_s(bench.ask(Opcode::all_reduce, "dp", bytes, true)) == Approx(8 * alone).epsilon(1e-12));

    const Racks own_nic{.nodes = 2, .nics = 8};
    Bench rails(own_nic, Mesh({{"dp", 2}, {"tp", 8}}), ring);
    CHECK(rails.wire_s(rails.ask(Opcode::all_reduce, "dp", bytes, true)) == Approx(alone).epsilon(1e-12));
}

TEST_CASE("wires: a ring over whole nodes leaves each by all of its NICs") {
    const Racks shape{.nodes = 4};
    Bench bench(shape, Mesh({{"dp", 32}}), ring);
    const double sent = 2.0 * 1024 * mib * 31 / 32;
    CHECK(bench.wire_s(bench.ask(Opcode::all_reduce, "dp", 1024 * mib)) == Approx(sent / 80e9).epsilon(1e-12));
}

TEST_CASE("wires: an oversubscribed leaf holds up what leaves it, and nothing else") {
    const std::string fabric =
        "kind = \"fat_tree\"\nrail_optimized = true\nnodes_per_leaf = 2\nleaf_oversubscription = 4";
    const Racks shape{.nodes = 4, .fabric = fabric};
    const int64_t bytes = 512 * mib;
    // The innermost axis over pairs of nodes below one leaf; the outer one crosses leaves.
    Bench bench(shape, Mesh({{"pp", 2}, {"dp", 2}, {"tp", 8}}), ring);
    const double free = static_cast<double>(bytes) / 10e9;
    CHECK(bench.wire_s(bench.ask(Opcode::all_reduce, "dp", bytes, true)) == Approx(free).epsilon(1e-12));
    // Each rail's bundle has a quarter of two NICs' rate.
    CHECK(bench.wire_s(bench.ask(Opcode::all_reduce, "pp", bytes, true)) == Approx(4 * free).epsilon(1e-12));
    // One group alone finds half a NIC's rate.
    CHECK(bench.wire_s(bench.ask(Opcode::all_reduce, "pp", bytes)) == Approx(2 * free).epsilon(1e-12));
}

TEST_CASE("wires: two levels of switches, and a dragonfly's groups") {
    const std::string tree_of_two =
        "kind = \"fat_tree\"\nnodes_per_leaf = 1\nnodes_per_pod = 2\npod_oversubscription = 8";
    const std::string dragonfly =
        "kind = \"dragonfly\"\nnodes_per_router = 1\nnodes_per_group = 2\ngroup_oversubscription = 8";
    for (const std::string& fabric : {tree_of_two, dragonfly}) {
        const Racks shape{.nodes = 4, .fabric = fabric};
        Bench bench(shape, Mesh({{"pp", 2}, {"dp", 2}, {"tp", 8}}), ring);
        const double free = static_cast<double>(512 * mib) / 10e9;
        CHECK(bench.wire_s(bench.ask(Opcode::all_reduce, "dp", 512 * mib, true)) == Approx(free).epsilon(1e-12));
        CHECK(bench.wire_s(bench.ask(Opcode::all_reduce, "pp", 512 * mib, true)) == Approx(8 * free).epsilon(1e-12));
    }
}

TEST_CASE("wires: a tree's latency grows with the logarithm of the nodes, a ring's with their number") {
    const auto latency = [](int nodes, const NcclSettings& settings) {
        const Racks shape{.nodes = nodes, .accelerators = 1, .nics = 1};
        Bench bench(shape, Mesh({{"dp", nodes}}), settings);
        return bench.ask(Opcode::all_reduce, "dp", 64).fixed_s;
    };
    const double step = latency(16, tree) - latency(8, tree);
    CHECK(step > 1e-6);
    CHECK(latency(64, tree) - latency(32, tree) == Approx(step).epsilon(0.01));
    CHECK(latency(64, ring) - latency(32, ring) == Approx(4 * (latency(16, ring) - latency(8, ring))).epsilon(0.01));
    CHECK(latency(64, tree) < latency(64, ring) / 4);
}

TEST_CASE("wires: both trees together load every node's NIC alike, at most with 2 S") {
    for (const int64_t nodes : {2, 3, 4, 7, 8, 64}) {
        const Racks shape{.nodes = static_cast<int>(nodes), .accelerators = 1, .nics = 1};
        Bench bench(shape, Mesh({{"dp", nodes}}), {.algorithm = NcclAlgorithm::tree, .nvls = true});
        const Demand demand = bench.ask(Opcode::all_reduce, "dp", 512 * mib);
        const double most = bench.wire_s(demand) * 10e9 / (512 * mib);
        INFO(nodes << " " << demand.how);
        CHECK(most <= 2.14);  // 128 bytes carry 120 where LL128 is taken
        CHECK(most >= (nodes == 2 ? 1.0 : 1.5));
    }
}

TEST_CASE("wires: NCCL's choice") {
    const Racks shape{.nvls = true};
    Bench bench(shape, Mesh({{"dp", 8}}));
    CHECK(bench.ask(Opcode::all_reduce, "dp", 64 * 1024).how == "ring, LL");
    CHECK(bench.ask(Opcode::all_reduce, "dp", 256 * mib).how == "NVLS");
    CHECK(bench.ask(Opcode::all_gather, "dp", 256 * mib).how == "ring, Simple");
    Bench pair(shape, Mesh({{"dp", 2}}));
    CHECK(pair.ask(Opcode::all_reduce, "dp", 256 * mib).how == "ring, Simple");
    Bench off(shape, Mesh({{"dp", 8}}), {.algorithm = {}, .nvls = false});
    CHECK(off.ask(Opcode::all_reduce, "dp", 256 * mib).how == "ring, Simple");
    Bench impossible({}, Mesh({{"dp", 8}}), {.algorithm = NcclAlgorithm::nvls, .nvls = true});
    CHECK_THROWS_WITH(impossible.ask(Opcode::all_reduce, "dp", mib), Catch::Contains("by NVLS for"));
}

TEST_CASE("wires: the change from ring to NVLS on H200 is where it was measured") {
    // shared/data/published_collectives.csv: LL up to 1 MiB and NVLS from 2 MiB on eight, ring on four, NVLS from five.
    Config file = load_toml(in_source("configs/clusters/h200.toml"));
    const Cluster cluster(file);
    const Constants constants;
    const auto how = [&](int64_t ranks, int64_t bytes) {
        const Mesh mesh({{"dp", ranks}});
        const Mapping mapping(cluster, mesh);
        ClusterWires wires(cluster, mesh, mapping, constants);
        const std::vector<int64_t> group = mesh.group(0, 0);
        return wires.collective(Opcode::all_reduce, 0, bytes, group, group).how;
    };
    CHECK(how(8, mib) == "ring, LL");
    CHECK(how(8, 2 * mib) == "NVLS");
    CHECK(how(4, 8192 * mib) == "ring, Simple");
    for (const int64_t ranks : {5, 6, 7, 8}) CHECK(how(ranks, 8192 * mib) == "NVLS");
}

TEST_CASE("wires: a rack of 72 is one domain; a host has no links") {
    Config rack = load_toml(in_source("configs/clusters/gb300.toml"));
    const Cluster cluster(rack);
    const Constants constants;
    const Mesh mesh({{"dp", 2}, {"ep", 72}});
    const Mapping mapping(cluster, mesh);
    ClusterWires wires(cluster, mesh, mapping, constants);
    CHECK(wires.message(1, mib, 0, 71, {0}).how == "scale-up");
    CHECK(wires.message(0, mib, 0, 72, {0}).how == "NIC");
    const std::vector<int64_t> group = mesh.group(0, 1);
    for (const Demand::Load& load : wires.collective(Opcode::all_reduce, 1, 256 * mib, group, group).loads)
        CHECK(wires.text(load.resource).starts_with("scale-up port"));

    Config here = load_toml(in_source("configs/clusters/this_machine.toml"));
    const Cluster host(here);
    const Mesh pair({{"dp", 2}});
    const Mapping places(host, pair);
    CHECK_THROWS_WITH(ClusterWires(host, pair, places, constants), Catch::Contains("node host is a host"));
}

TEST_CASE("wires: NVLS reads all of a member's bytes once and writes its part") {
    const Racks shape{.nvls = true};
    Bench bench(shape, Mesh({{"dp", 8}}), {.algorithm = NcclAlgorithm::nvls, .nvls = true});
    const double bytes = 1024.0 * mib;
    CHECK(bench.wire_s(bench.ask(Opcode::all_reduce, "dp", 1024 * mib)) ==
          Approx(bytes * 9 / 8 / 100e9).epsilon(1e-12));
}

TEST_CASE("wires: an all-to-all sends to every member, over NICs what leaves the node") {
    const Racks shape{.nodes = 2};
    Bench bench(shape, Mesh({{"ep", 16}}));
    const double bytes = 160.0 * mib;
    const Demand demand = bench.ask(Opcode::all_to_all, "ep", 160 * mib);
    CHECK(bench.wire_s(demand) == Approx(bytes * 8 / 16 / 10e9).epsilon(1e-12));
    Bench inside({}, Mesh({{"ep", 8}}));
    CHECK(inside.wire_s(inside.ask(Opcode::all_to_all, "ep", 160 * mib)) ==
          Approx(bytes * 7 / 8 / 100e9).epsilon(1e-12));
}

TEST_CASE("wires: an all-to-all over a list of axes sends over NICs what leaves the node, wherever its axes lie") {
    const double bytes = 160.0 * mib;
    const Racks shape{.nodes = 4};
    // dp over nodes and tp in them: a group of 4 x 2 ranks has two in each node, and four groups share the nodes.
    const Mesh mesh({{"dp", 4}, {"cp", 4}, {"tp", 2}});
    Bench folded(shape, mesh);
    const double leaves = bytes * 6 / 8 / 10e9, stays = bytes / 8 / 100e9;
    CHECK(folded.wire_s(folded.ask(Opcode::all_to_all, "dp+tp", 160 * mib)) == Approx(leaves).epsilon(1e-12));
    CHECK(folded.wire_s(folded.ask(Opcode::all_to_all, "dp+tp", 160 * mib, true)) == Approx(leaves).epsilon(1e-12));
    CHECK(stays < leaves);
    // One NIC for a node of 8: all groups together load it eight times.
    Bench narrow({.nodes = 4, .nics = 1}, mesh);
    CHECK(narrow.wire_s(narrow.ask(Opcode::all_to_all, "dp+tp", 160 * mib, true)) == Approx(8 * leaves).epsilon(1e-12));
    // cp and tp are a node.
    const Demand inside = folded.ask(Opcode::all_to_all, "cp+tp", 160 * mib, true);
    CHECK(folded.wire_s(inside) == Approx(bytes * 7 / 8 / 100e9).epsilon(1e-12));
    // All ranks in one group, and two all-to-alls one after the other: each moves its part of all bytes.
    const double all = folded.wire_s(folded.ask(Opcode::all_to_all, "dp+cp+tp", 160 * mib));
    CHECK(all == Approx(bytes * 24 / 32 / 10e9).epsilon(1e-12));
    CHECK(folded.wire_s(folded.ask(Opcode::all_to_all, "dp", 160 * mib)) ==
          Approx(bytes * 3 / 4 / 10e9).epsilon(1e-12));
}

TEST_CASE("wires: messages in a node, between nodes, and side by side") {
    const Racks shape{.nodes = 2, .nics = 1};
    Bench bench(shape, Mesh({{"pp", 2}, {"tp", 8}}));
    const Demand inside = bench.wires.message(*bench.mesh.find("tp"), 100 * mib, 0, 1, {0});
    CHECK(inside.how == "scale-up");
    CHECK(bench.wire_s(inside) == Approx(100.0 * mib / 100e9).epsilon(1e-12));
    const Demand across = bench.wires.message(*bench.mesh.find("pp"), 100 * mib, 0, 8, {0});
    CHECK(across.how == "NIC");
    CHECK(bench.wire_s(across) == Approx(100.0 * mib / 10e9).epsilon(1e-12));
    CHECK(across.fixed_s > inside.fixed_s);
    const Demand all = bench.wires.message(*bench.mesh.find("pp"), 100 * mib, 0, 8, {0, 1, 2, 3, 4, 5, 6, 7});
    CHECK(bench.wire_s(all) == Approx(8 * bench.wire_s(across)).epsilon(1e-12));
}

TEST_CASE("wires: 16,384 ranks are looked at once for each distinct collective") {
    const Racks shape{.nodes = 2048};
    Bench bench(shape, Mesh({{"pp", 16}, {"dp", 128}, {"tp", 8}}));
    const Demand first = bench.ask(Opcode::reduce_scatter, "dp", 512 * mib, true);
    CHECK(bench.wires.work() == 16384);
    CHECK(first.loads.size() <= 80);
    bench.ask(Opcode::reduce_scatter, "dp", 512 * mib, true);
    CHECK(bench.wires.work() == 16384);
    bench.ask(Opcode::all_gather, "tp", 8 * mib, true);
    CHECK(bench.wires.work() == 2 * 16384);
}
