#pragma once
#include <string>
#include <string_view>

#include "orrery/mesh.h"
#include "orrery/program.h"

namespace orrery {

/// Adds the states that feedback needs (options `codec` and `feedback` of an axis of P members): for each param with a
/// gradient that is sent as codes, f32[P, ..] of zeros, split over the axis: what encoding has left out of each
/// member's term, which it adds to the next one. Notes how many bytes they have. Throws Error for a codec that adds
/// codes.
///
///     %9 wte.weight.error.dp = state {kind=zeros, rows_add=true}  f32[dp=2,vocab=512,embed=64]  dp:S(0)
void add_errors(Program& program, const Mesh& mesh);

/// The name of such a state.
std::string error_name(std::string_view param, std::string_view axis);

}  // namespace orrery
