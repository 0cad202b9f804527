#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/config.h"

namespace orrery {

enum class Generation : uint8_t { other, volta, ampere, hopper, blackwell };

struct Accelerator {
    std::string name;
    Generation generation = Generation::other;  ///< whose tables NCCL takes
    std::map<std::string, double> dense_flops;  ///< products without sparsity, per second, by dtype: "bf16", "fp8"
    double memory_bytes = 0, memory_bytes_s = 0;
    double power_w = 0;
    int64_t multiprocessors = 0;
    double matrix_share = 0;  ///< part of dense_flops that the largest products reach; 0: not given
    std::string measured_as;  ///< whose rates in the table of constants it has: "H100-80G-SXM"; "": nobody's
    double price_hour = 0;    ///< 0: not given
};

/// What joins the accelerators of a node or of a rack. `host`: processes of one host, priced by measured tables.
struct ScaleUp {
    enum class Kind : uint8_t { nvswitch, nvlink_mesh, pcie, host };
    Kind kind = Kind::nvswitch;
    double bytes_s = 0;        ///< of one accelerator, one direction
    bool nvls = false;         ///< the switch adds and copies
    int64_t domain_nodes = 1;  ///< nodes that share it: 18 of 4 accelerators for an NVL72

    bool operator==(const ScaleUp&) const = default;
};

struct Nics {
    enum class Kind : uint8_t { infiniband, ethernet, efa };
    Kind kind = Kind::infiniband;
    int64_t count = 0;     ///< a node; accelerators that follow each other share one, or have several
    double bytes_s = 0;    ///< of each, one direction
    double latency_s = 0;  ///< beyond what NCCL's table has for InfiniBand
    bool ordered = true;   ///< arrives in order: NCCL's LL and LL128 need it

    bool operator==(const Nics&) const = default;
};

struct NodeKind {
    std::string name;
    int64_t count = 0;
    Accelerator accelerator;
    int64_t accelerators = 0;
    ScaleUp scale_up;
    Nics nics;
    double failures_per_node_day = 0;
};

/// Switches between nodes. Level 0 joins nodes_per_block[0] nodes, level 1 nodes_per_block[1] of them, ...; what leaves
/// a block goes through its bundle upwards.
struct Fabric {
    enum class Kind : uint8_t { single_switch, fat_tree, dragonfly };
    struct Level {
        int64_t nodes = 1;            ///< of one block
        double oversubscription = 1;  ///< rate of the block's NICs over that of its bundle
    };
    Kind kind = Kind::single_switch;
    bool rails = false;  ///< each of a node's NICs has leaves of its own
    std::vector<Level> levels;
    double hop_latency_s = 0;  ///< of each switch
};

struct Storage {
    double read_bytes_s = 0, write_bytes_s = 0;  ///< shared by all; 0: not given
};

/// What a simulated job runs on: configs/clusters/README.md has the keys.
class Cluster {
public:
    /// Throws Error at file:line for keys that are unknown, missing or out of range, saying what is expected.
    explicit Cluster(Config& file);

    std::string name;
    std::vector<NodeKind> kinds;
    Fabric fabric;
    Storage storage;

    int64_t nodes() const;
    int64_t accelerators() const;
    /// The same with `count` nodes of its one kind. Throws where it has several, or count is below 1 or above a
    /// million.
    Cluster with_nodes(int64_t count) const;

    /// Slots are all accelerators, node by node. Of one of them:
    struct Place {
        int kind = 0;
        int64_t node = 0;    ///< of all nodes
        int64_t domain = 0;  ///< of scale-up links; ascends with the node
        int64_t local = 0;   ///< in its node
        int64_t nic = 0;     ///< in its node; of several its first
    };
    Place place(int64_t slot) const;
    const NodeKind& kind_of(int64_t slot) const { return kinds[static_cast<size_t>(place(slot).kind)]; }
    /// By kind, how many of `ranks` on the first slots sit on its nodes.
    std::vector<int64_t> ranks_by_kind(int64_t ranks) const;
    /// By kind, the first kind whose nodes take the same time for all they do: they differ in nothing but name, number,
    /// memory, power, price and failures.
    std::vector<int> as_fast() const;
    /// Failures of all nodes together, a second.
    double failures_per_s() const;
    /// "16 nodes of 8 h100 (dgx_h100), fat tree of 32 nodes": one line a kind, then the switches' blocks of nodes.
    std::string text() const;
};

/// Whether every kind of accelerator has products of 8-bit floats.
bool multiplies_eight_bits(const Cluster& cluster);

}  // namespace orrery
