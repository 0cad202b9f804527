#pragma once
#include "orrery/program.h"

namespace orrery {

/// Only what the results need, renumbered. For programs without marks, gradients or updates.
Program prune(const Program& program);

/// The program up to the logits of its cross entropy, as the result "logits"; without ops when it has not exactly one.
Program keep_logits(const Program& forward);

}  // namespace orrery
