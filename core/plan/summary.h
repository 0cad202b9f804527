#pragma once
#include <string>
#include <vector>

#include "orrery/plan.h"

namespace orrery {

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
        Do what = Do::all_reduce;
        AxisId axis = none;
        int64_t count = 0;
        int64_t bytes_sent = 0;
    };
    std::vector<Traffic> traffic;  ///< by axis, then kind
};

struct PlanSummary {
    std::vector<ClassSummary> classes;
    AxisId stage_axis = none;
    std::string text(const Mesh& mesh) const;  ///< a table for people
};

/// Bytes that a communication instruction puts on the wire, by the formulas of orrery/communicator.h.
int64_t bytes_sent(const Instruction& instruction, const Mesh& mesh);
/// Floating-point operations of one launch, on its local shapes.
double local_flops(const Plan& plan, const Instruction& instruction, const RankClass& rank_class);

PlanSummary summary(const Plan& plan);

}  // namespace orrery
