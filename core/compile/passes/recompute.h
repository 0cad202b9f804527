#pragma once
#include "orrery/program.h"

namespace orrery {

/// Honours the recompute marks of a differentiated program: backward ops read copies of forward values that are made
/// again right before their first reader, from what is kept. Dropout draws the same numbers. A mark without kinds keeps
/// what its scope reads and what others read of it; one with kinds makes again what those ops make, for every backward
/// reader. Casts of params and cross entropy (which makes its gradient going forward) run once. Values keep their ids,
/// new ones come last. Throws Error naming the mark when no op is below its scope.
Program recompute(const Program& program);

}  // namespace orrery
