#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "orrery/plan.h"
#include "sim/software/defaults.h"

namespace orrery {

/// What a run decides of what a training software holds in memory.
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

/// The bytes of tensors that a rank of the class has at most at one time where that software runs the plan: states as
/// the plan splits them, params and gradients in the software's buffers, and the plan's activations as the software
/// keeps them. `kinds`, if given: adds a line for each kind of value, largest first.
int64_t held_bytes(const Plan& plan, const RankClass& c, const HeldOptions& options, std::string* kinds = nullptr);

}  // namespace orrery
