#pragma once
#include <cstdint>
#include <vector>

#include "sim/cluster/wires.h"
#include "sim/software/run.h"

namespace orrery {

/// The collectives and messages of a plan as training software sends them (see Prices): as parts of its messages where
/// it has flat buffers of gradients and params; where it scatters what a stage sends, a part by each rank of tp.
class SoftwareWires {
public:
    /// Keeps references to all arguments.
    SoftwareWires(const SoftwareRun& run, const Mesh& mesh, ClusterWires& wires);

    /// Demand of one collective or message; `bytes` are those of the plan.
    Demand collective(Opcode opcode, AxisId axis, int64_t bytes, const std::vector<int64_t>& group,
                      const std::vector<int64_t>& alike);
    Demand message(AxisId axis, int64_t bytes, int64_t from, int64_t to, const std::vector<int64_t>& alike);
    /// Seconds of a demand that has its links to itself.
    double seconds(const Demand& demand) const;

private:
    double flat_part(Opcode opcode, AxisId over, int64_t bytes) const;

    const SoftwareRun& run_;
    const Mesh& mesh_;
    ClusterWires& wires_;
    const int64_t data_ranks_;  ///< ranks that share gradients and optimizer states
};

}  // namespace orrery
