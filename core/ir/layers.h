#pragma once
#include <vector>

#include "orrery/program.h"

namespace orrery {

/// The layer of each op of any phase, by op index: ids from 0 for the layers of `layers` (orrery/strategy.h), and for
/// the outermost scopes of ops outside these layers (embedding, head); none for an op without a scope. Linear.
std::vector<int> layers_of_ops(const Program& program);

}  // namespace orrery
