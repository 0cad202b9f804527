#pragma once
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "orrery/plan.h"
#include "plan/chunks/chunks.h"
#include "plan/network.h"

namespace orrery {

/// Computes the bytes that communication sends, by the axis' chunk table or the formulas of orrery/communicator.h.
class WireBytes {
public:
    WireBytes() = default;  ///< uses the formulas, for plans without chunk tables
    WireBytes(const Network& contracts, const std::map<std::string, std::vector<ChunkTable>>& collectives);

    /// The bytes that a member sends for a communication instruction, max over members. An all_reduce of at most
    /// TransportContract::small_bytes counts as ceil(log2(members)) sends of the whole tensor.
    int64_t bytes_sent(const Instruction& instruction, const Mesh& mesh) const;

private:
    Network contracts_;
    std::map<std::pair<std::string, Opcode>, std::pair<int64_t, int64_t>>
        parts_;  ///< by axis and opcode: chunks that a member sends (max), chunks in the tensor
};

/// The memory, computation and traffic of a rank in one step, for the ranks of a class.
struct ClassSummary {
    int64_t ranks = 0;
    int64_t inputs = 0, params = 0, states = 0, results = 0;  ///< bytes in the persistent arena
    /// Bytes in use when the scratch arena is fullest, by MemoryPart.
    int64_t gradients = 0, param_copies = 0, activations = 0, workspaces = 0;
    int64_t scratch = 0;  ///< bytes of the arena; `floor`: bytes that any placement of its buffers needs
    int64_t floor = 0;
    int64_t total = 0;    ///< bytes of both arenas, persistent and scratch
    int64_t kernels = 0;  ///< number of kernel launches per step
    double flops = 0;     ///< floating-point operations per step

    /// Communication of a step over one axis by one kind of instruction.
    struct Traffic {
        Opcode opcode = Opcode::all_reduce;
        AxisId axis = none;
        int64_t count = 0;
        int64_t bytes_sent = 0;
    };
    std::vector<Traffic> traffic;  ///< sorted by axis, then by opcode
};

struct PlanSummary {
    std::vector<ClassSummary> classes;
    AxisId stage_axis = none;
    std::vector<PrefetchDepth> ahead;
    int64_t stored = 0;  ///< number of micro-batches that a stream contains
    int64_t run = 0;     ///< number of micro-batches per run of a Repeat; 0: nothing is repeated
    std::string text(const Mesh& mesh) const;
};

/// The floating-point operations of one launch of a kernel on its local shapes.
double local_flops(const Plan& plan, const Instruction& instruction, const RankClass& rank_class);

PlanSummary summary(const Plan& plan, const WireBytes& wires = {});

}  // namespace orrery
