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

/// All links of a cluster, each direction separately: accelerators' ports to their scale-up links, NICs, and the
/// bundles from blocks of nodes to the switches above. A link gets its id on first use.
class Links {
public:
    enum class Kind : uint8_t { port_out, port_in, nic_out, nic_in, up, down };

    Links(const Cluster& cluster, const Constants& constants);

    double capacity(ResourceId id) const { return capacity_.at(static_cast<size_t>(id)); }
    int size() const { return static_cast<int>(capacity_.size()); }
    std::string text(ResourceId id) const;

    ResourceId port(int64_t slot, bool out);
    int64_t nics_of(int64_t slot) const;
    ResourceId nic(int64_t slot, int64_t which, bool out);
    /// Returns one resource for all links, up or down, between a level's switches and the block of nodes below them
    /// that contains the accelerator's NIC number `which`.
    ResourceId bundle(size_t level, int64_t slot, int64_t which, bool up);
    /// block() returns the index of the block of nodes, at a level of switches, that contains NIC number `which` of an
    /// accelerator; narrow() returns whether a block's links up can be slower than the NICs in the block.
    int64_t block(size_t level, int64_t slot, int64_t which) const;
    bool narrow(size_t level) const;
    size_t levels() const { return cluster_.fabric.levels.size(); }

    /// Fraction of a NIC's rate that transfers reach.
    double net_reached(int64_t slot) const {
        return net_reached_[static_cast<size_t>(cluster_.kind_of(slot).nics.kind)];
    }
    /// Seconds of latency in the switches between two accelerators' nodes, without that of the NICs.
    double switches_s(int64_t from, int64_t to) const;

private:
    ResourceId id(Kind kind, size_t level, int64_t index, double capacity);
    double nics_below(size_t level, int64_t slot, int64_t which) const;

    const Cluster& cluster_;
    std::array<double, 3> net_reached_;  ///< by Nics::Kind, see net_reached()
    int64_t most_nics_ = 1;
    std::unordered_map<uint64_t, ResourceId> ids_;
    std::vector<uint64_t> keys_;
    std::vector<double> capacity_;
};

/// Bytes on links, divided by the fraction of the rate that transfers reach: if transfers reach 80 % of a link's rate,
/// 100 bytes count as 125.
class LinkLoads {
public:
    explicit LinkLoads(Links& links) : links_(links) {}

    void port(int64_t slot, double out, double in);
    /// Adds `bytes` sent from one accelerator's NICs to another's, also on the switches' links between them.
    void net(int64_t from, int64_t to, double bytes);
    /// Adds a message of `bytes` from each of the accelerators `slots` to every other in another scale-up domain.
    void net_all(const std::vector<int64_t>& slots, const std::vector<int64_t>& domains, double bytes);

    double amount(ResourceId id) const {
        return static_cast<size_t>(id) < amounts_.size() ? amounts_[static_cast<size_t>(id)] : 0;
    }
    double seconds(ResourceId id) const { return amount(id) / links_.capacity(id); }
    /// Returns the seconds that the slowest link needs for its bytes.
    double seconds() const;
    const std::vector<ResourceId>& touched() const { return touched_; }

private:
    void add(ResourceId id, double bytes);

    Links& links_;
    std::vector<double> amounts_;
    std::vector<ResourceId> touched_;
};

}  // namespace orrery
