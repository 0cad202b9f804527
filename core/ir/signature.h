// Checks the types of operands against the letters of OpDef::types. Devices use wrong_operands of orrery/kernel.h.
#pragma once
#include <string>
#include <vector>

#include "orrery/op.h"

namespace orrery {

/// Validates OpDef::types: the letters alone, and against `operands`. Returns the problem, or "" when they are valid.
std::string problem_of_types(const OpDef& def);

/// Checks the input types. Throws Error at the op's origin, naming the first input of a wrong type.
void check_inputs(const Infer& at, const OpDef& def);
/// Checks the number and types of the inferred outputs. Throws Error at the op's origin.
void check_outputs(const Infer& at, const OpDef& def, const std::vector<Typed>& made);

}  // namespace orrery
