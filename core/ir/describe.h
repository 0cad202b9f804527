#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "orrery/program.h"

namespace orrery {

/// A tensor type with dim names as text: "f32[batch=8,embed=512]". Unnamed dims show only their size.
std::string text_of(const TensorType& type, const std::vector<std::string>& dims);

/// A word as programs print it: in quotes if it has characters other than letters, digits and _ . - /.
std::string quoted(std::string_view word);

/// The value of an attribute as text: "0.02", "[8,512]", "tanh", "true". A whole double gets a point: "2.0".
std::string text_of(const Attribute& value);
/// An op's attributes as text: "{approx=tanh, eps=1e-05}"; "" if there are none. `skip`: an attribute to leave out.
std::string text_of(const Attributes& attributes, std::string_view skip = "");

/// The name of a value, or "%12 (gelu)" if it has no name.
std::string label_of(const Program& program, ValueId id);

/// The message of codes that has this result; nullptr if there is none. Linear in their number.
const CodedMessage* coded_message(const Program& program, ValueId value);

/// The value that went into collectives inserted by propagation: x for all_gather(all_reduce(x)), coded or not.
ValueId original_of(const Program& program, ValueId value);

/// Describes a value for messages: "x f32[batch=8,embed=512] (mlp.lua:3)".
std::string describe(const Program& program, ValueId id);

/// Describes an op for messages: "matmul %2, mlp.lua:9, in layers.0.mlp".
std::string describe(const Program& program, const Op& op);

}  // namespace orrery
