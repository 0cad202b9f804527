#pragma once
#include <string>
#include <vector>

#include "orrery/program.h"

namespace orrery {

/// "f32[batch=8,embed=512]"; unnamed dims show their size only.
std::string text_of(const TensorType& type, const std::vector<std::string>& dims);

/// The value's name, or "%12 (gelu)" for one without.
std::string label_of(const Program& program, ValueId id);

/// For messages: "x f32[batch=8,embed=512] (mlp.lua:3)".
std::string describe(const Program& program, ValueId id);

/// For messages: "matmul %2, mlp.lua:9, in layers.0.mlp".
std::string describe(const Program& program, const Op& op);

}  // namespace orrery
