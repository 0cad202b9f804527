#pragma once
#include <vector>

#include "orrery/program.h"

namespace orrery::lowering {

/// For each op, whether it is backward-weight (W): leads only to gradients of params. An op is backward-input (B) if
/// its output reaches an op that reads an activation (such as the next layer's matmul for its weight gradient), or a
/// transfer per micro-batch. A gradient of a param never does, because it is summed over the batch. Ops that make both
/// kinds of gradients, and recomputed ones, stay in B. `needed`: by op. Linear.
std::vector<char> weight_gradients(const Program& program, AxisId micro_axis, const std::vector<char>& needed);

}  // namespace orrery::lowering
