#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "orrery/plan.h"
#include "sim/software/defaults.h"

namespace orrery {

/// How a run uses memory, where it depends on the job.
struct HeldOptions {
    SoftwareDefaults software;
    AxisId tp = none;
    std::vector<char> data;  ///< by AxisId: ranks along it share gradients and states
    int zero = 0;            ///< stage
    bool sequence = false;   ///< tp also splits the sequence between blocks
    bool eight_bit = false;  ///< GEMMs of linear layers are in 8 bits
    bool full_recompute = false;
    bool bf16_gradients = false;  ///< gradients are summed in 16 bits
};

/// Max bytes of tensors that a rank of class `c` holds at once when the software runs the plan. States are split as in
/// the plan, params and gradients are in the software's buffers, activations are those that it saves. `kinds`: if
/// given, gets a line for each kind of value, largest first (at most 16).
int64_t held_bytes(const Plan& plan, const RankClass& c, const HeldOptions& options, std::string* kinds = nullptr);

}  // namespace orrery
