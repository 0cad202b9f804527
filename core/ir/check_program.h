#pragma once
#include "orrery/program.h"

namespace orrery {

/// Checks that a program is legal: every pass must leave it so. Infers every op again and compares types, names and
/// attributes. Throws Error naming the op or value and what is wrong. Linear.
void check_program(const Program& program);

}  // namespace orrery
