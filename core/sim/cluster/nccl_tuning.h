#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "orrery/plan.h"
#include "sim/cluster/cluster.h"

namespace orrery {

enum class NcclAlgorithm : uint8_t { ring, tree, nvls, nvls_tree };
enum class NcclProtocol : uint8_t { ll, ll128, simple };

/// "ring, LL128"
std::string name_of(NcclAlgorithm algorithm, NcclProtocol protocol);

/// What NCCL's tuning looks at. A domain is what it calls a node: accelerators that share scale-up links.
struct NcclGroup {
    Generation generation = Generation::other;
    bool nvlink = true;
    bool nvls = false;
    int64_t ranks = 1;
    int64_t domains = 1;
    int64_t heads = 1;        ///< ranks of the smallest domain
    double link_bytes_s = 0;  ///< of an accelerator, one direction, as in its data sheet
    int64_t nics = 1;         ///< that the group's ranks of one domain have between them
    double nic_bytes_s = 0;   ///< of each
    double nic_latency_s = 0;
    bool ordered = true;
};

/// As the environment sets them for NCCL: NCCL_ALGO, NCCL_NVLS_ENABLE.
struct NcclSettings {
    std::optional<NcclAlgorithm> algorithm;
    bool nvls = true;
};

struct NcclChoice {
    NcclAlgorithm algorithm = NcclAlgorithm::ring;
    NcclProtocol protocol = NcclProtocol::simple;
    double predicted_s = 0;  ///< by NCCL's own formula, which wires does not use
};

/// The algorithm and protocol that NCCL takes for `bytes` (S of communicator.h): the one with the least predicted time.
/// Throws Error when settings name an algorithm that the group cannot have.
NcclChoice choose(Opcode opcode, int64_t bytes, const NcclGroup& group, const NcclSettings& settings);

/// Rings or trees at once, each with its own blocks.
int64_t channels(NcclAlgorithm algorithm, const NcclGroup& group);
/// Bytes that one channel handles at once; of NVLS, of one head of one channel.
int64_t chunk_bytes(NcclAlgorithm algorithm, NcclProtocol protocol, int64_t bytes, const NcclGroup& group);
/// Seconds: of a launch, and of one step inside a domain or between two (without the NIC's own).
double base_latency(NcclAlgorithm algorithm, NcclProtocol protocol);
double step_latency(NcclAlgorithm algorithm, NcclProtocol protocol, const NcclGroup& group, bool between);
/// Bytes a second that all channels together cannot exceed for other reasons than links: copies by the blocks of a
/// channel, flags that are polled. Infinity where there is no such bound.
double copy_limit(NcclAlgorithm algorithm, NcclProtocol protocol, const NcclGroup& group);
/// Bytes of payload in each byte that the protocol sends.
double payload(NcclProtocol protocol);

}  // namespace orrery
