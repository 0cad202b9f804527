#pragma once
#include "orrery/program.h"

namespace orrery {

/// Checks a program, as after every pass: infers the outputs of every op again and compares types, names and
/// attributes. Throws Error naming the op or value and the problem. Linear.
void check_program(const Program& program);

}  // namespace orrery
