#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "sim/cluster/cluster.h"
#include "sim/constants.h"
#include "sim/prices.h"

namespace orrery {

/// Everything on a cluster that bytes pass through, each direction by itself: accelerators' ports to their scale-up
/// links, NICs, and the bundles by which blocks of nodes reach the switches above. Named when they are first asked for.
class Links {
public:
    enum class Kind : uint8_t { port_out, port_in, nic_out, nic_in, up, down };

    Links(const Cluster& cluster, const Constants& constants);

    double capacity(ResourceId id) const { return capacity_.at(static_cast<size_t>(id)); }
    int size() const { return static_cast<int>(capacity_.size()); }
    /// "NIC 3 of node 17, out"
    std::string text(ResourceId id) const;

    ResourceId port(int64_t slot, bool out);
    /// An accelerator's own NICs; several accelerators may share one.
    int64_t nics_of(int64_t slot) const;
    ResourceId nic(int64_t slot, int64_t which, bool out);
    /// The bundle of the fabric's level above a NIC.
    ResourceId bundle(size_t level, int64_t slot, int64_t which, bool up);
    /// Index of the block of a level in which a NIC lies, and whether its bundle can be narrower than the NICs below.
    int64_t block(size_t level, int64_t slot, int64_t which) const;
    bool narrow(size_t level) const;
    size_t levels() const { return cluster_.fabric.levels.size(); }

    /// Part of a NIC's rate that is reached.
    double net_reached(int64_t slot) const {
        return net_reached_[static_cast<size_t>(cluster_.kind_of(slot).nics.kind)];
    }
    /// Beyond the latency of a NIC: the switches between two nodes.
    double switches_s(int64_t from, int64_t to) const;

private:
    ResourceId id(Kind kind, size_t level, int64_t index, double capacity);
    double nics_below(size_t level, int64_t slot, int64_t which) const;

    const Cluster& cluster_;
    std::array<double, 3> net_reached_;  ///< by Nics::Kind
    int64_t most_nics_ = 1;
    std::unordered_map<uint64_t, ResourceId> ids_;
    std::vector<uint64_t> keys_;
    std::vector<double> capacity_;
};

/// Bytes on links, as many as their rates would let pass in the time that they really take: 100 bytes over a link of
/// which 80 % is reached are 125.
class LinkLoads {
public:
    explicit LinkLoads(Links& links) : links_(links) {}

    void port(int64_t slot, double out, double in);
    /// From an accelerator's NICs to another's, over the switches between them.
    void net(int64_t from, int64_t to, double bytes);
    /// Each of `slots` sends `bytes` to each other that is in another domain.
    void net_all(const std::vector<int64_t>& slots, const std::vector<int64_t>& domains, double bytes);

    double amount(ResourceId id) const {
        return static_cast<size_t>(id) < amounts_.size() ? amounts_[static_cast<size_t>(id)] : 0;
    }
    double seconds(ResourceId id) const { return amount(id) / links_.capacity(id); }
    /// Of the link that takes longest.
    double seconds() const;
    const std::vector<ResourceId>& touched() const { return touched_; }

private:
    void add(ResourceId id, double bytes);

    Links& links_;
    std::vector<double> amounts_;
    std::vector<ResourceId> touched_;
};

}  // namespace orrery
