#include "sim/cluster/links.h"

#include <fmt/format.h>

#include <algorithm>

namespace orrery {

namespace {

constexpr int index_bits = 48;

uint64_t key_of(Links::Kind kind, size_t level, int64_t index) {
    return (static_cast<uint64_t>(kind) << 56) | (static_cast<uint64_t>(level) << index_bits) |
           static_cast<uint64_t>(index);
}

}  // namespace

Links::Links(const Cluster& cluster, const Constants& constants)
    : cluster_(cluster),
      net_reached_{constants.of("net.infiniband"), constants.of("net.ethernet"), constants.of("net.efa")} {
    for (const NodeKind& kind : cluster.kinds) most_nics_ = std::max({most_nics_, kind.nics.count, kind.accelerators});
}

ResourceId Links::id(Kind kind, size_t level, int64_t index, double capacity) {
    const uint64_t key = key_of(kind, level, index);
    const auto [found, fresh] = ids_.emplace(key, static_cast<ResourceId>(capacity_.size()));
    if (fresh) {
        capacity_.push_back(capacity);
        keys_.push_back(key);
    }
    return found->second;
}

ResourceId Links::port(int64_t slot, bool out) {
    return id(out ? Kind::port_out : Kind::port_in, 0, slot, cluster_.kind_of(slot).scale_up.bytes_s);
}

int64_t Links::nics_of(int64_t slot) const {
    const NodeKind& kind = cluster_.kind_of(slot);
    return std::max<int64_t>(kind.nics.count / kind.accelerators, 1);
}

ResourceId Links::nic(int64_t slot, int64_t which, bool out) {
    const Cluster::Place place = cluster_.place(slot);
    const Nics& nics = cluster_.kinds[static_cast<size_t>(place.kind)].nics;
    if (nics.count == 0)
        throw Error(fmt::format("node {} ({}) has no NIC to reach other nodes\n  write [node.{}.nics]", place.node,
                                cluster_.kinds[static_cast<size_t>(place.kind)].name,
                                cluster_.kinds[static_cast<size_t>(place.kind)].name));
    return id(out ? Kind::nic_out : Kind::nic_in, 0, place.node * most_nics_ + place.nic + which, nics.bytes_s);
}

int64_t Links::block(size_t level, int64_t slot, int64_t which) const {
    const Cluster::Place place = cluster_.place(slot);
    const int64_t block = place.node / cluster_.fabric.levels[level].nodes;
    return cluster_.fabric.rails && level == 0 ? block * most_nics_ + place.nic + which : block;
}

bool Links::narrow(size_t level) const { return cluster_.fabric.levels[level].oversubscription > 1; }

/// Returns the bytes per second of all NICs in a block of nodes. An incomplete last block counts as complete.
double Links::nics_below(size_t level, int64_t slot, int64_t which) const {
    const Cluster::Place place = cluster_.place(slot);
    const int64_t nodes = cluster_.fabric.levels[level].nodes;
    const int64_t first = place.node / nodes * nodes, end = first + nodes;
    const bool rail = cluster_.fabric.rails && level == 0;
    double sum = 0;
    int64_t begin = 0;
    for (const NodeKind& kind : cluster_.kinds) {
        const int64_t until = &kind == &cluster_.kinds.back() ? end : std::min(begin + kind.count, end);
        const int64_t nics = !rail ? kind.nics.count : place.nic + which < kind.nics.count ? 1 : 0;
        sum += static_cast<double>(std::max<int64_t>(0, until - std::max(begin, first)) * nics) * kind.nics.bytes_s;
        begin += kind.count;
    }
    return sum;
}

ResourceId Links::bundle(size_t level, int64_t slot, int64_t which, bool up) {
    return id(up ? Kind::up : Kind::down, level, block(level, slot, which),
              nics_below(level, slot, which) / cluster_.fabric.levels[level].oversubscription);
}

double Links::switches_s(int64_t from, int64_t to) const {
    size_t level = 0;
    while (level < levels() && block(level, from, 0) != block(level, to, 0)) ++level;
    return static_cast<double>(2 * level + 1) * cluster_.fabric.hop_latency_s;
}

std::string Links::text(ResourceId id) const {
    const uint64_t key = keys_.at(static_cast<size_t>(id));
    const auto kind = static_cast<Kind>(key >> 56);
    const int64_t index = static_cast<int64_t>(key & ((uint64_t{1} << index_bits) - 1));
    const uint64_t level = (key >> index_bits) & 0xff;
    switch (kind) {
        case Kind::port_out: return fmt::format("scale-up port of accelerator {}, out", index);
        case Kind::port_in: return fmt::format("scale-up port of accelerator {}, in", index);
        case Kind::nic_out: return fmt::format("NIC {} of node {}, out", index % most_nics_, index / most_nics_);
        case Kind::nic_in: return fmt::format("NIC {} of node {}, in", index % most_nics_, index / most_nics_);
        case Kind::up: return fmt::format("bundle {} of level {}, up", index, level);
        case Kind::down: return fmt::format("bundle {} of level {}, down", index, level);
    }
    return "";
}

void LinkLoads::add(ResourceId id, double bytes) {
    if (bytes <= 0) return;
    if (amounts_.size() <= static_cast<size_t>(id)) amounts_.resize(static_cast<size_t>(id) + 1);
    double& amount = amounts_[static_cast<size_t>(id)];
    if (amount == 0) touched_.push_back(id);
    amount += bytes;
}

void LinkLoads::port(int64_t slot, double out, double in) {
    add(links_.port(slot, true), out);
    add(links_.port(slot, false), in);
}

void LinkLoads::net(int64_t from, int64_t to, double bytes) {
    const int64_t flows = std::max(links_.nics_of(from), links_.nics_of(to));
    const double each = bytes / static_cast<double>(flows);
    for (int64_t flow = 0; flow < flows; ++flow) {
        const int64_t out = flow % links_.nics_of(from), in = flow % links_.nics_of(to);
        add(links_.nic(from, out, true), each / links_.net_reached(from));
        add(links_.nic(to, in, false), each / links_.net_reached(to));
        for (size_t level = 0; level < links_.levels(); ++level) {
            if (links_.block(level, from, out) == links_.block(level, to, in)) break;
            if (!links_.narrow(level)) continue;
            add(links_.bundle(level, from, out, true), each / links_.net_reached(from));
            add(links_.bundle(level, to, in, false), each / links_.net_reached(to));
        }
    }
}

void LinkLoads::net_all(const std::vector<int64_t>& slots, const std::vector<int64_t>& domains, double bytes) {
    std::unordered_map<int64_t, int64_t> in_domain;
    for (const int64_t domain : domains) ++in_domain[domain];
    const auto all = static_cast<int64_t>(slots.size());
    for (size_t i = 0; i < slots.size(); ++i) {
        const int64_t nics = links_.nics_of(slots[i]);
        const double each = bytes * static_cast<double>(all - in_domain[domains[i]]) / static_cast<double>(nics) /
                            links_.net_reached(slots[i]);
        for (int64_t which = 0; which < nics; ++which) {
            add(links_.nic(slots[i], which, true), each);
            add(links_.nic(slots[i], which, false), each);
        }
    }
    for (size_t level = 0; level < links_.levels(); ++level) {
        if (!links_.narrow(level)) continue;
        std::unordered_map<int64_t, int64_t> in_block;
        for (const int64_t slot : slots) ++in_block[links_.block(level, slot, 0)];
        for (const int64_t slot : slots) {
            const double out = bytes * static_cast<double>(all - in_block[links_.block(level, slot, 0)]);
            add(links_.bundle(level, slot, 0, true), out / links_.net_reached(slot));
            add(links_.bundle(level, slot, 0, false), out / links_.net_reached(slot));
        }
    }
}

double LinkLoads::seconds() const {
    double most = 0;
    for (const ResourceId id : touched_) most = std::max(most, seconds(id));
    return most;
}

}  // namespace orrery
