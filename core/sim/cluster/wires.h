#pragma once
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "sim/cluster/links.h"
#include "sim/cluster/mapping.h"
#include "sim/cluster/nccl_steps.h"

namespace orrery {

/// The communication part of Prices: what NCCL's collectives and messages demand of a cluster's links. Each step has a
/// latency and a rate (alpha-beta), for the algorithm and protocol that NCCL chooses for the size and the group's
/// place.
class ClusterWires {
public:
    /// Keeps references to all arguments except the settings. Throws Error if links of the cluster are of kind `host`.
    ClusterWires(const Cluster& cluster, const Mesh& mesh, const Mapping& mapping, const Constants& constants,
                 const NcclSettings& settings = {});

    /// Returns what a collective needs of the links (see Prices); linear in the ranks, or constant if cached.
    Demand collective(Opcode opcode, AxisId axis, int64_t bytes, const std::vector<int64_t>& group,
                      const std::vector<int64_t>& alike);
    /// Returns what a message needs of the links (see Prices). The receivers of other senders are assumed to be as far
    /// from them along the axis as `to` is from `from`.
    Demand message(AxisId axis, int64_t bytes, int64_t from, int64_t to, const std::vector<int64_t>& alike);
    double capacity(ResourceId resource) const { return links_.capacity(resource); }

    std::string text(ResourceId resource) const { return links_.text(resource); }
    /// Number of group members examined in all calls so far: the work that caching saves, for tests.
    int64_t work() const { return work_; }

private:
    struct Question {
        int what;  ///< opcode of the collective or message
        AxisId axis;
        int64_t bytes;
        uint64_t ranks;  ///< hash of the lists `group` and `alike`
        auto operator<=>(const Question&) const = default;
    };

    Demand ask(Opcode opcode, AxisId axis, int64_t bytes, const std::vector<int64_t>& group,
               const std::vector<int64_t>& alike);
    Demand ask_message(AxisId axis, int64_t bytes, int64_t from, int64_t to, const std::vector<int64_t>& alike);
    GroupPlace place(const std::vector<int64_t>& ranks);
    void load(Opcode opcode, int64_t bytes, const GroupPlace& group, const NcclChoice& choice, LinkLoads& loads);
    void answer(const LinkLoads& own, const LinkLoads& all, Demand& demand) const;
    double switches_s(const GroupPlace& group) const;

    const Cluster& cluster_;
    const Mesh& mesh_;
    const Mapping& mapping_;
    const Constants& constants_;
    NcclSettings settings_;
    Links links_;
    std::map<Question, Demand> answers_;
    int64_t work_ = 0;
};

}  // namespace orrery
