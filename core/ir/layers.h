#pragma once
#include <vector>

#include "orrery/program.h"

namespace orrery {

/// By op: which layer it belongs to, as `layers` (orrery/strategy.h) cuts a model; ops of all phases, and what lies
/// outside of the row (an embedding, a head) by its outermost scope. none: an op without a scope. Linear.
std::vector<int> layers_of_ops(const Program& program);

}  // namespace orrery
