#pragma once
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "orrery/plan.h"
#include "plan/chunks/chunks.h"
#include "plan/network.h"

namespace orrery {

/// The algorithms that carry collectives, as far as they send other bytes than orrery/communicator.h's formulas.
class WireBytes {
public:
    WireBytes() = default;  ///< no others
    WireBytes(const Network& contracts, const std::map<std::string, std::vector<ChunkTable>>& collectives);

    /// Bytes that a communication instruction puts on the wire: the most that one member sends, where the algorithm
    /// lets them send differently much or (up to TransportContract::small_bytes) leaves it open.
    int64_t bytes_sent(const Instruction& instruction, const Mesh& mesh) const;

private:
    Network contracts_;
    std::map<std::pair<std::string, Opcode>, std::pair<int64_t, int64_t>>
        parts_;  ///< by axis: chunks sent, of how many
};

/// What one step costs a rank of one class. Bytes and counts are per rank.
struct ClassSummary {
    int64_t ranks = 0;
    int64_t inputs = 0, params = 0, states = 0, results = 0;  ///< bytes in the persistent arena
    /// Bytes alive at the scratch arena's fullest moment; workspaces: the kernels' own scratch.
    int64_t gradients = 0, activations = 0, workspaces = 0;
    int64_t scratch = 0;  ///< bytes of the scratch arena; floor: the least possible
    int64_t floor = 0;
    int64_t total = 0;    ///< persistent + scratch
    int64_t kernels = 0;  ///< launches
    double flops = 0;     ///< of all launches

    /// One kind of communication over one axis.
    struct Traffic {
        Opcode opcode = Opcode::all_reduce;
        AxisId axis = none;
        int64_t count = 0;
        int64_t bytes_sent = 0;
    };
    std::vector<Traffic> traffic;  ///< by axis, then kind
};

struct PlanSummary {
    std::vector<ClassSummary> classes;
    AxisId stage_axis = none;
    std::vector<PrefetchDepth> ahead;  ///< Plan::ahead
    int64_t stored = 0;                ///< micro-batches that a stream holds; of those left out, one run stands for all
    int64_t run = 0;                   ///< micro-batches of such a run; 0: all are written out
    std::string text(const Mesh& mesh) const;  ///< a table for people
};

/// Floating-point operations of one launch, on its local shapes.
double local_flops(const Plan& plan, const Instruction& instruction, const RankClass& rank_class);

PlanSummary summary(const Plan& plan, const WireBytes& wires = {});

}  // namespace orrery
