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
    Generation generation = Generation::other;  ///< GPU generation, which selects NCCL's tuning tables
    std::map<std::string, double> dense_flops;  ///< FLOP/s of matrix products without sparsity, by dtype: "bf16", "fp8"
    double memory_bytes = 0, memory_bytes_s = 0;
    double power_w = 0;
    int64_t multiprocessors = 0;
    double matrix_share = 0;  ///< fraction of dense_flops that the largest matrix products reach; 0: unknown
    std::string measured_as;  ///< name under which the simulator's fitted constants list it: "H100-80G-SXM"; "": none
    double price_hour = 0;    ///< price of one accelerator for an hour; 0: unknown
    std::vector<std::string> driver_names;  ///< what its driver calls it: "NVIDIA H200"
};

/// Links between the accelerators of a node or rack. Kind `host`: ranks are processes of a host, priced as measured.
struct ScaleUp {
    enum class Kind : uint8_t { nvswitch, nvlink_mesh, pcie, host };
    Kind kind = Kind::nvswitch;
    double bytes_s = 0;        ///< bandwidth of the links of one accelerator in one direction
    bool nvls = false;         ///< whether the NVSwitch can sum and multicast data
    int64_t domain_nodes = 1;  ///< number of nodes that share the links: 18 nodes of 4 accelerators for an NVL72

    bool operator==(const ScaleUp&) const = default;
};

struct Nics {
    enum class Kind : uint8_t { infiniband, ethernet, efa };
    Kind kind = Kind::infiniband;
    int64_t count = 0;     ///< NICs per node; with fewer NICs than accelerators, adjacent accelerators share one
    double bytes_s = 0;    ///< bandwidth of one NIC in one direction
    double latency_s = 0;  ///< seconds of latency in addition to NCCL's table for InfiniBand
    bool ordered = true;   ///< whether messages arrive in order, as NCCL's protocols LL and LL128 need

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

/// Network switches between nodes, in levels. Each level divides the nodes into blocks; traffic between blocks passes
/// the links from each block to the switches above, the block's bundle.
struct Fabric {
    enum class Kind : uint8_t { single_switch, fat_tree, dragonfly };
    struct Level {
        int64_t nodes = 1;            ///< number of nodes in a block
        double oversubscription = 1;  ///< bandwidth of a block's NICs over that of the block's links to upper switches
    };
    Kind kind = Kind::single_switch;
    bool rails = false;  ///< whether each NIC of a node has leaf switches of its own
    std::vector<Level> levels;
    double hop_latency_s = 0;
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

    /// Location of an accelerator in the cluster. A slot is the index of an accelerator among all, node by node.
    struct Place {
        int kind = 0;
        int64_t node = 0;
        int64_t domain = 0;  ///< index of the scale-up domain: the group of nodes that share scale-up links
        int64_t local = 0;   ///< index of the accelerator in its node
        int64_t nic = 0;     ///< index in the node of the accelerator's NIC; if it has several, of the first
    };
    Place place(int64_t slot) const;
    const NodeKind& kind_of(int64_t slot) const { return kinds[static_cast<size_t>(place(slot).kind)]; }
    /// Returns the number of ranks on each kind of node if the ranks use the first `ranks` accelerators.
    std::vector<int64_t> ranks_by_kind(int64_t ranks) const;
    /// For each kind of node, returns the index of the first kind that is equally fast. Equally fast kinds differ only
    /// in name, count, memory, power, price and failures.
    std::vector<int> as_fast() const;
    double failures_per_s() const;
    /// Describes the cluster: "16 nodes of 8 h100 (dgx_h100), fat tree of 32 nodes". The text has a line for each kind
    /// of node, then the switches' blocks of nodes.
    std::string text() const;
};

}  // namespace orrery
