#pragma once
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "orrery/plan.h"
#include "plan/chunks/chunks.h"
#include "plan/network.h"

namespace orrery {

/// Computes the bytes that communication sends: by chunk table if there is one, else as in orrery/communicator.h.
class WireBytes {
public:
    WireBytes() = default;  ///< the formulas for all axes
    WireBytes(const Network& contracts, const std::map<std::string, std::vector<ChunkTable>>& collectives);

    /// Max bytes that one member sends for a communication instruction. An all_reduce of at most
    /// TransportContract::small_bytes is counted as ceil(log2(members)) sends of the whole tensor.
    int64_t bytes_sent(const Instruction& instruction, const Mesh& mesh) const;

private:
    Network contracts_;
    std::map<std::pair<std::string, Opcode>, std::pair<int64_t, int64_t>>
        parts_;  ///< by axis and opcode: max chunks sent by a member, chunks of the tensor
};

/// Memory, work and traffic of one step, per rank of a class.
struct ClassSummary {
    int64_t ranks = 0;
    int64_t inputs = 0, params = 0, states = 0, results = 0;  ///< bytes in the persistent arena
    /// Bytes in the scratch arena at the moment of max use; workspaces belong to kernels.
    int64_t gradients = 0, activations = 0, workspaces = 0;
    int64_t scratch = 0;  ///< bytes of the scratch arena; floor: lower bound for any assignment
    int64_t floor = 0;
    int64_t total = 0;    ///< persistent + scratch, bytes
    int64_t kernels = 0;  ///< launches per step
    double flops = 0;     ///< floating-point operations per step

    /// All communication of one kind over one axis, per step.
    struct Traffic {
        Opcode opcode = Opcode::all_reduce;
        AxisId axis = none;
        int64_t count = 0;
        int64_t bytes_sent = 0;
    };
    std::vector<Traffic> traffic;  ///< by axis, then opcode
};

struct PlanSummary {
    std::vector<ClassSummary> classes;
    AxisId stage_axis = none;
    std::vector<PrefetchDepth> ahead;          ///< copy of Plan::ahead
    int64_t stored = 0;                        ///< micro-batches stored in a stream
    int64_t run = 0;                           ///< micro-batches per run of the repeated part; 0: none
    std::string text(const Mesh& mesh) const;  ///< a table for the terminal
};

/// The floating-point operations of one launch on its local shapes.
double local_flops(const Plan& plan, const Instruction& instruction, const RankClass& rank_class);

PlanSummary summary(const Plan& plan, const WireBytes& wires = {});

}  // namespace orrery
