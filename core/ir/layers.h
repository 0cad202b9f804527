#pragma once
#include <vector>

#include "orrery/program.h"

namespace orrery {

/// By op: the layer of the model that it belongs to, counted from 0, as in `layers` of orrery/strategy.h. The outermost
/// scopes of ops outside of layers (embedding, head) count as layers; none for an op without a scope. Linear.
std::vector<int> layers_of_ops(const Program& program);

}  // namespace orrery
