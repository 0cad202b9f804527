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

/// What a launch, collective or message needs from a cluster.
struct Demand {
    /// Seconds that pass first and do not depend on other work: latency, launch, a kernel on a device of its own.
    double fixed_s = 0;
    /// Loads that proceed concurrently after the fixed time; the demand ends when the slowest load ends.
    struct Load {
        ResourceId resource = none;
        double amount = 0;  ///< amount in the resource's unit: bytes, processor seconds
    };
    std::vector<Load> loads;
    /// Min duration of the loads, since one thread uses one processor and one flow one link.
    double least_s = 0;
    std::string how;  ///< name of the algorithm, for reports: "ring, LL128"; "" if there is no choice
};

/// Costs of a plan's work on a cluster. The same question always has the same answer; callers cache answers.
class Prices {
public:
    virtual ~Prices() = default;
    /// A launch on the rank's device, without other work.
    virtual Demand kernel(const KernelSpec& spec, int64_t rank) = 0;
    /// A copy within the rank's device.
    virtual Demand copy(int64_t bytes, int64_t rank) = 0;
    /// A collective of `group`, whose members are in order. `alike`: all ranks of the job whose groups run the same
    /// collective at the same time, ascending, including this group; their loads on links of this group's ranks are
    /// included. `bytes`: S of orrery/communicator.h, size of the larger tensor.
    virtual Demand collective(Opcode opcode, AxisId axis, int64_t bytes, const std::vector<int64_t>& group,
                              const std::vector<int64_t>& alike) = 0;
    /// A message of `bytes`. `alike`: ranks that send the same message to their own partners at the same time.
    virtual Demand message(AxisId axis, int64_t bytes, int64_t from, int64_t to, const std::vector<int64_t>& alike) = 0;
    /// The kind of a rank's node. Ranks on different kinds of node are priced separately.
    virtual int kind(int64_t) const { return 0; }
    /// Capacity of a resource that an answer named, in its unit per second.
    virtual double capacity(ResourceId resource) const = 0;
};

}  // namespace orrery
