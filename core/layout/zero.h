#pragma once
#include <optional>
#include <vector>

#include "orrery/strategy.h"

namespace orrery {

/// The first dim of the value that n more ranks can split, behind the axes that store marks split it over already.
std::optional<int> first_dim_to_split(const Program& program, const Mesh& mesh, ValueId value, int64_t n);

/// The values that the gradient of a param is a sum of, inner sums included; nothing when it is no sum.
std::vector<ValueId> terms_of_gradient(const Program& program, ValueId param);

/// Per value: a param of which forward ops read a copy of lower precision.
std::vector<char> params_with_low_copies(const Program& program);

}  // namespace orrery
