#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "orrery/plan.h"
#include "sim/cluster/cluster.h"

namespace orrery {

enum class NcclAlgorithm : uint8_t { ring, tree, nvls, nvls_tree };
enum class NcclProtocol : uint8_t { ll, ll128, simple };

std::string name_of(NcclAlgorithm algorithm, NcclProtocol protocol);

/// Inputs of NCCL's tuning. A domain is what NCCL calls a node: accelerators that share scale-up links.
struct NcclGroup {
    Generation generation = Generation::other;
    bool nvlink = true;
    bool nvls = false;
    int64_t ranks = 1;
    int64_t domains = 1;
    int64_t heads = 1;        ///< number of ranks of the smallest domain
    double link_bytes_s = 0;  ///< bandwidth of an accelerator's links in one direction, by its data sheet
    int64_t nics = 1;         ///< number of NICs of the group's ranks in one domain
    double nic_bytes_s = 0;
    double nic_latency_s = 0;
    bool ordered = true;
};

/// Settings of NCCL's environment variables NCCL_ALGO and NCCL_NVLS_ENABLE.
struct NcclSettings {
    std::optional<NcclAlgorithm> algorithm;
    bool nvls = true;
};

struct NcclChoice {
    NcclAlgorithm algorithm = NcclAlgorithm::ring;
    NcclProtocol protocol = NcclProtocol::simple;
    double predicted_s = 0;  ///< time by NCCL's own formula, not the simulated one
};

/// The algorithm and protocol that NCCL chooses for `bytes` (S of communicator.h): the one with the smallest predicted
/// time. Throws Error if settings name an algorithm that the group cannot use.
NcclChoice choose(Opcode opcode, int64_t bytes, const NcclGroup& group, const NcclSettings& settings);

/// Number of NCCL's channels for a collective: concurrent rings or trees, each run by its own thread blocks.
int64_t channels(NcclAlgorithm algorithm, const NcclGroup& group);
/// Bytes of a chunk: what an NCCL channel, or with NVLS one head (rank of a domain) of a channel, processes at a time.
int64_t chunk_bytes(NcclAlgorithm algorithm, NcclProtocol protocol, int64_t bytes, const NcclGroup& group);
/// Latency in seconds: base_latency() of a whole collective, step_latency() of a step, in a domain or `between` two.
double base_latency(NcclAlgorithm algorithm, NcclProtocol protocol);
double step_latency(NcclAlgorithm algorithm, NcclProtocol protocol, const NcclGroup& group, bool between);
/// Max bytes per second of all NCCL channels together, as limited by thread blocks that copy and poll flags and not by
/// links; infinity: no limit.
double copy_limit(NcclAlgorithm algorithm, NcclProtocol protocol, const NcclGroup& group);
/// Fraction of the bytes sent by a protocol that are payload; the others are flags.
double payload(NcclProtocol protocol);

}  // namespace orrery
