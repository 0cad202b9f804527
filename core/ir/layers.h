#pragma once
#include <vector>

#include "orrery/program.h"

namespace orrery {

/// The layer that each op belongs to, by op index: numbers from 0 for the layers of `layers` (orrery/strategy.h), and
/// for the outermost scopes of ops outside these layers (embedding, head); none for an op without a scope. Linear.
std::vector<int> layers_of_ops(const Program& program);

}  // namespace orrery
