#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "orrery/program.h"

namespace orrery {

/// A type as text: "f32[batch=8,embed=512]". Unnamed dims show only their size.
std::string text_of(const TensorType& type, const std::vector<std::string>& dims);

/// A word as programs print it: quoted when it has characters other than letters, digits and _ . - /.
std::string quoted(std::string_view word);

/// An attribute value as text: "0.02", "[8,512]", "tanh", "true". A whole number of type double has a point: "2.0".
std::string text_of(const Attribute& value);
/// Attributes as text: "{approx=tanh, eps=1e-05}"; "" when there are none. `skip`: a key to leave out.
std::string text_of(const Attributes& attributes, std::string_view skip = "");

/// The value's name, or "%12 (gelu)" when it has no name.
std::string label_of(const Program& program, ValueId id);

/// Follows inserted collectives back to their first input: for all_gather(all_reduce(x)), x.
ValueId original_of(const Program& program, ValueId value);

/// For messages: "x f32[batch=8,embed=512] (mlp.lua:3)".
std::string describe(const Program& program, ValueId id);

/// For messages: "matmul %2, mlp.lua:9, in layers.0.mlp".
std::string describe(const Program& program, const Op& op);

}  // namespace orrery
