#pragma once
#include "compile/islands.h"

namespace orrery {

/// The plan of a step of islands as it was before `give_slices`: params, states and the batch are those of one island,
/// the same on all of them.
///
///     w f32[site=2,embed=4]  site:S(0) tp:S(1)    ->   w f32[embed=4]  tp:S(0)
///     x f32[batch=12]        site:S(0) dp:S(0)    ->   x f32[batch=6]  dp:S(0)
Plan one_island(Plan plan, const Islands& islands);

}  // namespace orrery
