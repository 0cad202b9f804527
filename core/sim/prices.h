#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "orrery/device.h"
#include "orrery/plan.h"

namespace orrery {

/// What work passes through at a bounded rate, shared by all that use it at once: one direction of an accelerator's
/// port or of a NIC, the links from a switch upwards (bytes a second); a host's processors (processor seconds a
/// second).
using ResourceId = int;

/// What a launch, collective or message asks of a cluster.
struct Demand {
    /// First passes a time that nothing else changes: latency, launch, a kernel on a device of its own.
    double fixed_s = 0;
    /// Then all of these are drawn beside each other; it ends when the slowest has.
    struct Load {
        ResourceId resource = none;
        double amount = 0;  ///< in the resource's unit: bytes, processor seconds
    };
    std::vector<Load> loads;
    /// The loads take at least so long, whatever the capacities: one thread has one processor, one flow one link.
    double least_s = 0;
    std::string how;  ///< what carries it, for reports: "ring, LL128"; "" where there is no choice
};

/// What a plan's work costs on some cluster. Same answers for the same questions; callers keep them.
class Prices {
public:
    virtual ~Prices() = default;
    /// One launch on the rank's device, alone.
    virtual Demand kernel(const KernelSpec& spec, int64_t rank) = 0;
    /// A copy inside the rank's device.
    virtual Demand copy(int64_t bytes, int64_t rank) = 0;
    /// A collective of `group`, by member. `alike`: all ranks of the job whose groups do the same at the same time, the
    /// group's among them, ascending: their loads on links of the group's ranks are in the answer. `bytes`: S of
    /// orrery/communicator.h, of the larger tensor.
    virtual Demand collective(Opcode opcode, AxisId axis, int64_t bytes, const std::vector<int64_t>& group,
                              const std::vector<int64_t>& alike) = 0;
    /// A message of `bytes`. `alike`: the ranks that send the same to partners of their own at the same time.
    virtual Demand message(AxisId axis, int64_t bytes, int64_t from, int64_t to, const std::vector<int64_t>& alike) = 0;
    /// Ranks of different numbers sit on different kinds of node: their kernels, copies and links are asked about
    /// apart.
    virtual int kind(int64_t) const { return 0; }
    /// Of each ResourceId that an answer has named, in its unit a second.
    virtual double capacity(ResourceId resource) const = 0;
};

}  // namespace orrery
