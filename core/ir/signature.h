// Operands against the letters of OpDef::types. The check of a device's spec is in orrery/kernel.h.
#pragma once
#include <string>
#include <vector>

#include "orrery/op.h"

namespace orrery {

/// What is wrong with an op's letters by themselves and beside its `operands`, "" where nothing is.
std::string problem_of_types(const OpDef& def);

/// Throws Infer's error at the first input that is not of its letter's type.
void check_inputs(const Infer& at, const OpDef& def);
/// The same for what the op's inference makes of them.
void check_outputs(const Infer& at, const OpDef& def, const std::vector<Typed>& made);

}  // namespace orrery
