#pragma once
#include <vector>

#include "orrery/program.h"

namespace orrery::lowering {

/// By op: whether it leads only to gradients of params, so that it may run later, in a W fragment. An op stays in the
/// backward (B) if its output reaches a transfer between stages, or an op that reads an activation (such as the next
/// layer's matmul for its weight gradient). Ops that make both kinds of gradients, and recomputed ones, stay there too.
/// `needed`: by op. Linear.
std::vector<char> weight_gradients(const Program& program, AxisId micro_axis, const std::vector<char>& needed);

}  // namespace orrery::lowering
