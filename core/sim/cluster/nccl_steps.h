#pragma once
#include <cstdint>
#include <vector>

#include "sim/cluster/links.h"
#include "sim/cluster/nccl_tuning.h"

namespace orrery {

/// A group's members as slots of the cluster, cut into domains (of scale-up links) in the order of its members.
struct GroupPlace {
    std::vector<std::vector<int64_t>> domains;
    NcclGroup facts;

    /// The domain that takes part in a double binary tree as its number `domain`: its parents and children.
    struct TreeEdge {
        int64_t parent, child;
    };
    /// The edges of both trees (NCCL's: even numbers of domains mirror the second, odd ones shift it).
    std::vector<TreeEdge> tree_edges() const;
};

GroupPlace place_group(const Cluster& cluster, const std::vector<int64_t>& slots);

/// What the algorithm puts on links, by members that do it alone. `bytes`: S of communicator.h.
void load_links(Opcode opcode, int64_t bytes, const GroupPlace& group, const NcclChoice& choice,
                const Constants& constants, LinkLoads& loads);

/// Seconds that pass beside those on links: launch, latency of all steps, the filling of the pipeline of chunks, and
/// what copies by the channels' blocks take longer than the links would. `wire_s`: LinkLoads::seconds of the group
/// alone; `switches_s`: of the switches between two of its nodes.
double fixed_seconds(Opcode opcode, int64_t bytes, const GroupPlace& group, const NcclChoice& choice,
                     const Constants& constants, double wire_s, double switches_s);

/// S (P-1)/P to each link of a ring, twice for all_reduce.
double ring_bytes(Opcode opcode, int64_t bytes, int64_t ranks);

/// An all-to-all of messages to every member.
void load_all_to_all(int64_t bytes, const GroupPlace& group, const Constants& constants, LinkLoads& loads);
double fixed_all_to_all(const GroupPlace& group, double switches_s);

/// One message, in its domain or over NICs.
void load_message(int64_t bytes, int64_t from, int64_t to, bool same_domain, double reached, LinkLoads& loads);
double fixed_message(const NcclGroup& facts, bool same_domain, double switches_s);

/// Part of a scale-up link's rate that copies over it reach.
double link_reached(const NcclGroup& facts, const Constants& constants);

}  // namespace orrery
