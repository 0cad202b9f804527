#pragma once
#include <cstdint>
#include <vector>

#include "sim/cluster/links.h"
#include "sim/cluster/nccl_tuning.h"

namespace orrery {

/// The accelerators (slots) of a group of ranks, divided into scale-up domains, in the ranks' order.
struct GroupPlace {
    std::vector<std::vector<int64_t>> domains;
    NcclGroup facts;

    struct TreeEdge {
        int64_t parent, child;
    };
    /// Returns the edges of NCCL's two trees; the second mirrors (even number of domains) or shifts (odd) the first.
    std::vector<TreeEdge> tree_edges() const;
};

GroupPlace place_group(const Cluster& cluster, const std::vector<int64_t>& slots);

/// Adds to `loads` the bytes that NCCL puts on links for one group's collective. `bytes`: size S of communicator.h.
void load_links(Opcode opcode, int64_t bytes, const GroupPlace& group, const NcclChoice& choice,
                const Constants& constants, LinkLoads& loads);

/// Seconds of a collective besides the transfer over links: launch, latency of all steps, filling the pipeline of
/// chunks, and copies by the channels' blocks if slower than the links. `wire_s`: LinkLoads::seconds of the group
/// alone; `switches_s`: latency of the switches between two nodes of the group.
double fixed_seconds(Opcode opcode, int64_t bytes, const GroupPlace& group, const NcclChoice& choice,
                     const Constants& constants, double wire_s, double switches_s);

/// Bytes that a ring of P ranks sends on each link for a collective of S bytes: S (P-1)/P; for all_reduce twice that.
double ring_bytes(Opcode opcode, int64_t bytes, int64_t ranks);

void load_all_to_all(int64_t bytes, const GroupPlace& group, const Constants& constants, LinkLoads& loads);
double fixed_all_to_all(const GroupPlace& group, double switches_s);

void load_message(int64_t bytes, int64_t from, int64_t to, bool same_domain, double reached, LinkLoads& loads);
double fixed_message(const NcclGroup& facts, bool same_domain, double switches_s);

/// Fraction of a scale-up link's rate that copies over the link reach.
double link_reached(const NcclGroup& facts, const Constants& constants);

}  // namespace orrery
