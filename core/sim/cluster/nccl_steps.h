#pragma once
#include <cstdint>
#include <vector>

#include "sim/cluster/links.h"
#include "sim/cluster/nccl_tuning.h"

namespace orrery {

/// A group's members as slots of the cluster, divided into domains of scale-up links, in the members' order.
struct GroupPlace {
    std::vector<std::vector<int64_t>> domains;
    NcclGroup facts;

    /// The parents and children of a domain in both trees of the double binary tree.
    struct TreeEdge {
        int64_t parent, child;
    };
    /// The edges of both trees, as in NCCL: an even number of domains mirrors the second tree, an odd one shifts it.
    std::vector<TreeEdge> tree_edges() const;
};

GroupPlace place_group(const Cluster& cluster, const std::vector<int64_t>& slots);

/// Adds the bytes that the algorithm puts on links if only this group communicates. `bytes`: S of communicator.h.
void load_links(Opcode opcode, int64_t bytes, const GroupPlace& group, const NcclChoice& choice,
                const Constants& constants, LinkLoads& loads);

/// Seconds in addition to the transfer over links: launch, latency of all steps, filling the pipeline of chunks, and
/// copies by the channels' blocks if these are slower than the links. `wire_s`: LinkLoads::seconds of the group alone;
/// `switches_s`: latency of the switches between two of its nodes.
double fixed_seconds(Opcode opcode, int64_t bytes, const GroupPlace& group, const NcclChoice& choice,
                     const Constants& constants, double wire_s, double switches_s);

/// Bytes on each link of a ring: S (P-1)/P, twice as much for all_reduce.
double ring_bytes(Opcode opcode, int64_t bytes, int64_t ranks);

/// Loads of an all-to-all, which sends messages to every member.
void load_all_to_all(int64_t bytes, const GroupPlace& group, const Constants& constants, LinkLoads& loads);
double fixed_all_to_all(const GroupPlace& group, double switches_s);

/// Loads of one message, within a domain or over NICs.
void load_message(int64_t bytes, int64_t from, int64_t to, bool same_domain, double reached, LinkLoads& loads);
double fixed_message(const NcclGroup& facts, bool same_domain, double switches_s);

/// Fraction of a scale-up link's rate that copies over it reach.
double link_reached(const NcclGroup& facts, const Constants& constants);

}  // namespace orrery
