#pragma once
#include <string>
#include <string_view>

#include "orrery/mesh.h"
#include "orrery/program.h"

namespace orrery {

/// Adds the states that feedback needs (options `codec` and `feedback` of an axis of P members): for each param with a
/// gradient that is sent as codes, f32[P, ..] of zeros, split over the axis: what encoding has left out of each
/// member's term, which it adds to the next one. encode_edges lays them out as the terms. Notes how many bytes they
/// have. Throws Error for a codec that adds codes. Errors of islands are declared by their programs (update:owed): only
/// their bytes are noted.
///
///     %9 wte.weight.error.dp = state {kind=zeros, rows_add=true}  f32[dp=2,vocab=512,embed=64]  dp:S(0)
void add_errors(Program& program, const Mesh& mesh);

/// Adds the states that codecs with rounds keep (Codec::keep): for each param with a gradient that is sent as codes,
/// f32 [shards, .., n, columns] of normal numbers, the same in all members of the axis. `shards`: those of the param's
/// second last dim. Notes how many bytes they have.
///
///     %9 wte.weight.factor.dp = state {kind=normal, rows_copy=true}  f32[1,64,4]
void add_factors(Program& program, const Mesh& mesh);

/// Whether an axis has a codec with rounds.
bool has_factors(const Program& program);

/// The names of such states.
std::string error_name(std::string_view param, std::string_view axis);
std::string factor_name(std::string_view param, std::string_view axis);

}  // namespace orrery
