#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "orrery/program.h"

namespace orrery {

/// "f32[batch=8,embed=512]"; unnamed dims show their size only.
std::string text_of(const TensorType& type, const std::vector<std::string>& dims);

/// A word as programs print it: bare when it is made of letters, digits and _ . - /, otherwise quoted.
std::string quoted(std::string_view word);

/// "0.02", "[8,512]", "tanh", "true". A number that is whole keeps its point: "2.0".
std::string text_of(const Attribute& value);
/// "{approx=tanh, eps=1e-05}", "" when there are none. `skip`: one key to leave out.
std::string text_of(const Attributes& attributes, std::string_view skip = "");

/// The value's name, or "%12 (gelu)" for one without.
std::string label_of(const Program& program, ValueId id);

/// The value that inserted collectives made this one of: of `all_gather` of `all_reduce` of x it is x.
ValueId original_of(const Program& program, ValueId value);

/// For messages: "x f32[batch=8,embed=512] (mlp.lua:3)".
std::string describe(const Program& program, ValueId id);

/// For messages: "matmul %2, mlp.lua:9, in layers.0.mlp".
std::string describe(const Program& program, const Op& op);

}  // namespace orrery
