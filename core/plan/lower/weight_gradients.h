#pragma once
#include <vector>

#include "orrery/program.h"

namespace orrery::lowering {

/// By op: it belongs to W, backward-weight: a gradient that leads to gradients of params only. Found by reachability,
/// so that the answer does not depend on how many micro-batches there are: the gradient of an activation is needed by
/// an op that reads an activation (the next layer's product for its weights, at least), that of a param never is, for
/// the batch has been summed away. B keeps what makes both at once, what computes activations again, and what is sent
/// to another stage in each micro-batch. `needed`: by op. Linear in the size of the program.
std::vector<char> weight_gradients(const Program& program, AxisId micro_axis, const std::vector<char>& needed);

}  // namespace orrery::lowering
