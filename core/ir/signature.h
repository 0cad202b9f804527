// Checks types of operands against the letters of OpDef::types. (Devices use wrong_operands of orrery/kernel.h.)
#pragma once
#include <string>
#include <vector>

#include "orrery/op.h"

namespace orrery {

/// Checks that OpDef::types is well formed and agrees with OpDef::operands. Returns the problem, or "".
std::string problem_of_types(const OpDef& def);

/// The type letter of each of `count` inputs; "" for a collective, or if the op cannot have that many.
std::string input_letters(const OpDef& def, size_t count);

/// Checks the types of an op's inputs. Throws Error at the op's origin, naming the first input of a wrong type.
void check_inputs(const Infer& at, const OpDef& def);
/// Checks number and types of the outputs that inference returned. Throws Error at the op's origin.
void check_outputs(const Infer& at, const OpDef& def, const std::vector<Typed>& made);

}  // namespace orrery
