#include "sim/cluster/nccl_steps.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace orrery {

namespace {

double as_double(int64_t value) { return static_cast<double>(value); }

/// Returns the parent of a node in NCCL's binary tree of n nodes (every second is a leaf); none for the root, 0.
int64_t tree_parent(int64_t node, int64_t n) {
    if (node == 0) return none;
    const int64_t bit = node & -node;
    const int64_t up = (node ^ bit) | (bit << 1);
    return up < n ? up : node ^ bit;
}

double nvls_reached(const NcclGroup& facts, const Constants& constants) {
    return constants.of(facts.generation == Generation::blackwell ? "nvlink.nvls.blackwell" : "nvlink.nvls.hopper");
}

/// Adds `bytes` sent from one domain to another, where each member of a domain sends its share over its own NICs.
void load_boundary(const std::vector<int64_t>& from, const std::vector<int64_t>& to, double bytes, LinkLoads& loads) {
    const size_t flows = std::max(from.size(), to.size());
    for (size_t flow = 0; flow < flows; ++flow)
        loads.net(from[flow % from.size()], to[flow % to.size()], bytes / static_cast<double>(flows));
}

void load_ring(double bytes, const GroupPlace& group, double reached, LinkLoads& loads) {
    const size_t n = group.domains.size();
    for (size_t i = 0; i < n; ++i) {
        const std::vector<int64_t>& domain = group.domains[i];
        // Channels' rings leave a domain at different members, so all members have the same load.
        const double inside =
            n == 1 ? bytes : bytes * static_cast<double>(domain.size() - 1) / static_cast<double>(domain.size());
        for (const int64_t slot : domain) loads.port(slot, inside / reached, inside / reached);
        if (n > 1) load_boundary(domain, group.domains[(i + 1) % n], bytes, loads);
    }
}

/// Adds the bytes of both trees of an all_reduce on the NICs between domains; each tree sends half of them up and down.
void load_tree(double bytes, const GroupPlace& group, LinkLoads& loads) {
    for (const auto& [parent, child] : group.tree_edges()) {
        const std::vector<int64_t>& up = group.domains[static_cast<size_t>(parent)];
        const std::vector<int64_t>& down = group.domains[static_cast<size_t>(child)];
        load_boundary(down, up, bytes / 2, loads);
        load_boundary(up, down, bytes / 2, loads);
    }
}

/// Adds the bytes of chains inside domains, with which trees start and end. In each NCCL channel all ranks of a domain
/// but one forward everything up and down a chain, which starts at another rank in each channel.
void load_chains(double bytes, const GroupPlace& group, double reached, LinkLoads& loads) {
    for (const std::vector<int64_t>& domain : group.domains) {
        const double each = 2 * bytes * static_cast<double>(domain.size() - 1) / static_cast<double>(domain.size());
        for (const int64_t slot : domain) loads.port(slot, each / reached, each / reached);
    }
}

/// Adds the bytes of NVLS between ranks and switch. For a sum, the switch reads all bytes of a rank and returns each
/// rank its part; for a copy, it reads a rank's part and returns all bytes.
void load_switch(Opcode opcode, double bytes, const GroupPlace& group, double reached, LinkLoads& loads) {
    for (const std::vector<int64_t>& domain : group.domains) {
        const double part = bytes / static_cast<double>(domain.size());
        const double summed = opcode == Opcode::all_gather ? 0 : bytes, sum = opcode == Opcode::all_gather ? 0 : part;
        const double spread = opcode == Opcode::reduce_scatter ? 0 : bytes;
        const double copied = opcode == Opcode::reduce_scatter ? 0 : part;
        for (const int64_t slot : domain) loads.port(slot, (summed + copied) / reached, (spread + sum) / reached);
    }
}

int levels(int64_t domains) {
    int out = 0;
    while ((int64_t{1} << out) < domains) ++out;
    return out;
}

struct Times {
    double base, inside, between;
};

Times times(const GroupPlace& group, const NcclChoice& choice, const Constants& constants, double switches_s) {
    const NcclGroup& facts = group.facts;
    const bool simple = choice.protocol == NcclProtocol::simple;
    Times out{base_latency(choice.algorithm, choice.protocol),
              step_latency(choice.algorithm, choice.protocol, facts, false),
              step_latency(choice.algorithm, choice.protocol, facts, true)};
    if (choice.algorithm == NcclAlgorithm::ring && simple && facts.nvlink)
        out.inside = std::max(out.inside, constants.of("ring.step_s"));
    out.between += (facts.nic_latency_s + switches_s) * (simple ? 2 : 1);
    return out;
}

/// Seconds of filling the pipeline of chunks: until the first chunk has passed all chains and trees, or the switch.
double fill_seconds(int64_t bytes, const GroupPlace& group, const NcclChoice& choice, const Constants& constants,
                    double wire_s) {
    const NcclGroup& facts = group.facts;
    if (choice.algorithm == NcclAlgorithm::ring) return 0;
    const bool in_switch = choice.algorithm != NcclAlgorithm::tree;
    const double lanes = as_double(channels(choice.algorithm, facts));
    const double chunk = as_double(chunk_bytes(choice.algorithm, choice.protocol, bytes, facts));
    const double round = std::min(chunk * lanes * (in_switch ? as_double(facts.heads) : 1), as_double(bytes));
    const double round_s = wire_s * round / as_double(bytes);
    // A tree node waits for chunks of two children, so for half of what its NIC receives in a round.
    const double hops = facts.domains > 1 ? 2 * levels(facts.domains) * round_s / 2 : 0;
    if (in_switch) {
        const double alone =
            round * (1 + 1 / as_double(facts.heads)) / facts.link_bytes_s / nvls_reached(facts, constants);
        return constants.of("nvls.fill") * alone + hops;
    }
    const double copied = copy_limit(choice.algorithm, choice.protocol, facts) / (lanes / 2);
    return 2 * as_double(facts.heads - 1) * round / lanes / copied + hops;
}

/// Adds a kind of node to a group's properties. With several kinds, NCCL uses the weakest value of each property.
void add_kind(const NodeKind& kind, bool first, NcclGroup& facts) {
    const auto least = [&](auto& fact, const auto& of_kind) { fact = first ? of_kind : std::min(fact, of_kind); };
    const auto share = as_double(kind.nics.count) / as_double(kind.accelerators);
    least(facts.generation, kind.accelerator.generation);
    least(facts.nvlink, kind.scale_up.kind != ScaleUp::Kind::pcie);
    least(facts.nvls, kind.scale_up.nvls);
    least(facts.link_bytes_s, kind.scale_up.bytes_s);
    least(facts.nic_bytes_s, kind.nics.bytes_s);
    least(facts.ordered, kind.nics.ordered);
    least(facts.nics, std::max<int64_t>(1, std::llround(std::ceil(share * as_double(facts.heads)))));
    facts.nic_latency_s = std::max(facts.nic_latency_s, kind.nics.latency_s);
}

}  // namespace

std::vector<GroupPlace::TreeEdge> GroupPlace::tree_edges() const {
    const auto n = static_cast<int64_t>(domains.size());
    std::vector<TreeEdge> out;
    for (int64_t node = 0; node < n; ++node) {
        const int64_t parent = tree_parent(node, n);
        if (parent == none) continue;
        out.push_back({parent, node});
        const auto twin = [&](int64_t i) { return n % 2 ? (i + 1) % n : n - 1 - i; };
        out.push_back({twin(parent), twin(node)});
    }
    return out;
}

GroupPlace place_group(const Cluster& cluster, const std::vector<int64_t>& slots) {
    GroupPlace out;
    std::unordered_map<int64_t, size_t> found;
    NcclGroup& facts = out.facts;
    facts.ranks = static_cast<int64_t>(slots.size());
    std::vector<char> kinds(cluster.kinds.size(), 0);
    for (const int64_t slot : slots) {
        const Cluster::Place place = cluster.place(slot);
        kinds[static_cast<size_t>(place.kind)] = 1;
        const auto [at, fresh] = found.emplace(place.domain, out.domains.size());
        if (fresh) out.domains.emplace_back();
        out.domains[at->second].push_back(slot);
    }
    facts.domains = static_cast<int64_t>(out.domains.size());
    facts.heads = facts.ranks;
    for (const auto& domain : out.domains) facts.heads = std::min(facts.heads, static_cast<int64_t>(domain.size()));
    bool first = true;
    for (size_t kind = 0; kind < kinds.size(); ++kind)
        if (kinds[kind]) add_kind(cluster.kinds[kind], std::exchange(first, false), facts);
    return out;
}

double link_reached(const NcclGroup& facts, const Constants& constants) {
    return constants.of(facts.nvlink ? "nvlink.ring" : "pcie");
}

double ring_bytes(Opcode opcode, int64_t bytes, int64_t ranks) {
    return (opcode == Opcode::all_reduce ? 2 : 1) * as_double(bytes) * as_double(ranks - 1) / as_double(ranks);
}

void load_links(Opcode opcode, int64_t bytes, const GroupPlace& group, const NcclChoice& choice,
                const Constants& constants, LinkLoads& loads) {
    const double sent = as_double(bytes) / payload(choice.protocol);
    const double reached = link_reached(group.facts, constants);
    switch (choice.algorithm) {
        case NcclAlgorithm::ring:
            return load_ring(ring_bytes(opcode, bytes, group.facts.ranks) / payload(choice.protocol), group, reached,
                             loads);
        case NcclAlgorithm::tree: load_chains(sent, group, reached, loads); return load_tree(sent, group, loads);
        case NcclAlgorithm::nvls:
        case NcclAlgorithm::nvls_tree:
            load_switch(opcode, sent, group, nvls_reached(group.facts, constants), loads);
            return load_tree(sent, group, loads);
    }
}

double fixed_seconds(Opcode opcode, int64_t bytes, const GroupPlace& group, const NcclChoice& choice,
                     const Constants& constants, double wire_s, double switches_s) {
    const NcclGroup& facts = group.facts;
    const Times time = times(group, choice, constants, switches_s);
    const double fill = fill_seconds(bytes, group, choice, constants, wire_s);
    const double trees = 2 * levels(facts.domains) * time.between;
    const double limit = copy_limit(choice.algorithm, choice.protocol, facts);
    const auto slower = [&](double copied) { return std::max(0.0, copied / limit - wire_s); };
    switch (choice.algorithm) {
        case NcclAlgorithm::ring: {
            const int64_t rounds = opcode == Opcode::all_reduce ? 2 : 1;
            const int64_t out = facts.domains == 1 ? 0 : rounds * (facts.domains - 1);
            const int64_t in = rounds * (facts.ranks - 1) - out;
            return time.base + as_double(in) * time.inside + as_double(out) * time.between +
                   slower(ring_bytes(opcode, bytes, facts.ranks));
        }
        case NcclAlgorithm::tree:
            return time.base + 2 * as_double(facts.heads - 1) * time.inside + trees + fill +
                   slower(2 * as_double(bytes));
        case NcclAlgorithm::nvls:
        case NcclAlgorithm::nvls_tree: return time.inside + trees + fill;
    }
    return 0;
}

void load_all_to_all(int64_t bytes, const GroupPlace& group, const Constants& constants, LinkLoads& loads) {
    const double reached = link_reached(group.facts, constants) * constants.of("all_to_all");
    const double each = as_double(bytes) / as_double(group.facts.ranks);
    std::vector<int64_t> slots, domains;
    for (size_t i = 0; i < group.domains.size(); ++i) {
        const double inside = each * static_cast<double>(group.domains[i].size() - 1) / reached;
        for (const int64_t slot : group.domains[i]) {
            loads.port(slot, inside, inside);
            slots.push_back(slot);
            domains.push_back(static_cast<int64_t>(i));
        }
    }
    if (group.domains.size() > 1) loads.net_all(slots, domains, each / constants.of("all_to_all"));
}

double fixed_all_to_all(const GroupPlace& group, double switches_s) {
    return fixed_message(group.facts, group.domains.size() == 1, switches_s);
}

void load_message(int64_t bytes, int64_t from, int64_t to, bool same_domain, double reached, LinkLoads& loads) {
    if (!same_domain) return loads.net(from, to, as_double(bytes));
    loads.port(from, as_double(bytes) / reached, 0);
    loads.port(to, 0, as_double(bytes) / reached);
}

double fixed_message(const NcclGroup& facts, bool same_domain, double switches_s) {
    const double step = step_latency(NcclAlgorithm::ring, NcclProtocol::simple, facts, !same_domain);
    const double net = same_domain ? 0 : 2 * (facts.nic_latency_s + switches_s);
    return base_latency(NcclAlgorithm::ring, NcclProtocol::simple) + step + net;
}

}  // namespace orrery
