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
    Generation generation = Generation::other;  ///< selects NCCL's tuning tables
    std::map<std::string, double> dense_flops;  ///< FLOP/s of matrix products without sparsity, by dtype: "bf16", "fp8"
    double memory_bytes = 0, memory_bytes_s = 0;
    double power_w = 0;
    int64_t multiprocessors = 0;
    double matrix_share = 0;  ///< fraction of dense_flops that the largest matrix products reach; 0: unknown
    std::string measured_as;  ///< entries of the table of constants to use: "H100-80G-SXM"; "": none
    double price_hour = 0;    ///< price of an hour; 0: unknown
};

/// Kind of links between the accelerators of a node or rack. `host`: processes of one host, priced by measured tables.
struct ScaleUp {
    enum class Kind : uint8_t { nvswitch, nvlink_mesh, pcie, host };
    Kind kind = Kind::nvswitch;
    double bytes_s = 0;        ///< bandwidth of one accelerator in one direction
    bool nvls = false;         ///< the switch reduces and multicasts
    int64_t domain_nodes = 1;  ///< number of nodes that share the links: 18 nodes of 4 accelerators for an NVL72

    bool operator==(const ScaleUp&) const = default;
};

struct Nics {
    enum class Kind : uint8_t { infiniband, ethernet, efa };
    Kind kind = Kind::infiniband;
    int64_t count = 0;     ///< NICs per node; adjacent accelerators share a NIC, or have several each
    double bytes_s = 0;    ///< bandwidth of one NIC in one direction
    double latency_s = 0;  ///< latency in addition to NCCL's table for InfiniBand
    bool ordered = true;   ///< messages arrive in order, which NCCL's LL and LL128 need

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

/// Switches between nodes. Level 0 joins nodes_per_block[0] nodes, level 1 nodes_per_block[1] of them, ...; traffic
/// that leaves a block goes up through its bundle.
struct Fabric {
    enum class Kind : uint8_t { single_switch, fat_tree, dragonfly };
    struct Level {
        int64_t nodes = 1;            ///< nodes per block
        double oversubscription = 1;  ///< rate of the block's NICs over that of its bundle
    };
    Kind kind = Kind::single_switch;
    bool rails = false;  ///< each NIC of a node has its own leaf switches
    std::vector<Level> levels;
    double hop_latency_s = 0;  ///< latency of one switch
};

struct Storage {
    double read_bytes_s = 0, write_bytes_s = 0;  ///< bandwidth of storage, shared by all nodes; 0: unknown
};

/// The hardware of a simulated job; configs/clusters/README.md documents the keys.
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
    /// Returns the same cluster with `count` nodes of its only kind. Throws Error if it has several kinds, or if
    /// `count` is below 1 or above a million.
    Cluster with_nodes(int64_t count) const;

    /// Location of a slot. Slots are the indices of all accelerators, node by node.
    struct Place {
        int kind = 0;
        int64_t node = 0;    ///< index among all nodes
        int64_t domain = 0;  ///< index of its domain of scale-up links; ascends with the node
        int64_t local = 0;   ///< index of the accelerator in its node
        int64_t nic = 0;     ///< index of the accelerator's NIC in its node; of several the first one
    };
    Place place(int64_t slot) const;
    const NodeKind& kind_of(int64_t slot) const { return kinds[static_cast<size_t>(place(slot).kind)]; }
    /// Number of ranks on each kind of node, if ranks use the first `ranks` slots.
    std::vector<int64_t> ranks_by_kind(int64_t ranks) const;
    /// For each kind of node, returns the first kind that takes the same time for everything. Such kinds differ only in
    /// name, count, memory, power, price and failures.
    std::vector<int> as_fast() const;
    /// Failures per second of all nodes together.
    double failures_per_s() const;
    /// Describes the cluster: "16 nodes of 8 h100 (dgx_h100), fat tree of 32 nodes". Has a line for each kind, then the
    /// switches' blocks of nodes.
    std::string text() const;
};

/// Whether all kinds of accelerators have 8-bit float matrix products.
bool multiplies_eight_bits(const Cluster& cluster);

}  // namespace orrery
