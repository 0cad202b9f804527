#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "orrery/device.h"
#include "orrery/plan.h"

namespace orrery {

/// A resource of bounded rate that concurrent work shares: one direction of an accelerator's port or of a NIC, the
/// links above a switch (bytes per second), or a host's processors (processor seconds per second).
using ResourceId = int;

/// What a launch, copy, collective or message needs of a cluster.
struct Demand {
    /// Seconds that pass first and do not depend on other work: latency, launch, a kernel on a device of its own.
    double fixed_s = 0;
    /// Loads that proceed concurrently after the fixed time; the demand ends when the slowest load ends.
    struct Load {
        ResourceId resource = none;
        double amount = 0;  ///< in the resource's unit: bytes, processor seconds
    };
    std::vector<Load> loads;
    /// Min seconds that the loads take, since a thread uses at most one processor and a flow at most one link.
    double least_s = 0;
    std::string how;  ///< name of the algorithm, for reports: "ring, LL128"; "" if there is no choice
};

/// Predicts what a plan's work needs of a cluster. Equal arguments give equal results, so callers cache results.
class Prices {
public:
    virtual ~Prices() = default;
    /// Returns what a kernel launch on the rank's device needs if no other work runs.
    virtual Demand kernel(const KernelSpec& spec, int64_t rank) = 0;
    virtual Demand copy(int64_t bytes, int64_t rank) = 0;
    /// Returns what a collective of `group`, the ranks in order, needs. `alike`: ranks of all groups of the job that
    /// run this collective at the same time, ascending, including `group`; the result includes their loads on links of
    /// the ranks of `group`. `bytes`: size of the larger tensor, S of orrery/communicator.h.
    virtual Demand collective(Opcode opcode, AxisId axis, int64_t bytes, const std::vector<int64_t>& group,
                              const std::vector<int64_t>& alike) = 0;
    /// Returns what a message needs. `alike`: ranks that send such a message to their partners at the same time.
    virtual Demand message(AxisId axis, int64_t bytes, int64_t from, int64_t to, const std::vector<int64_t>& alike) = 0;
    /// The kind of a rank's node. Ranks on different kinds of node are priced separately.
    virtual int kind(int64_t) const { return 0; }
    /// Capacity of a resource of a Demand, in the resource's unit per second.
    virtual double capacity(ResourceId resource) const = 0;
};

}  // namespace orrery
