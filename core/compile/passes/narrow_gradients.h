#pragma once
#include "orrery/mesh.h"
#include "orrery/program.h"

namespace orrery {

/// Sends gradients in a narrower type over the axes of Program::reduce_as. Each term is cast before an all_reduce or
/// reduce_scatter, and the sum is cast back. Applies to sums of wider floats that are gradients of params, or that
/// linear ops computed from them; not to the loss, norms or activations. Contributions of micro-batches are always
/// accumulated in the gradient's own type. Casting rounds each term by at most 2^-9 (bf16); a transport that sums in
/// the narrow type rounds at each addition. Linear.
///
///     %5 = all_reduce %4 {axis=dp}  f32   ->   %8 = cast %4 {dtype=bf16}     bf16
///                                              %9 = all_reduce %8 {axis=dp}  bf16
///                                              %5 = cast %9 {dtype=f32}      f32
void narrow_gradients(Program& program, const Mesh& mesh);

}  // namespace orrery
