#pragma once
#include "orrery/mesh.h"
#include "orrery/program.h"

namespace orrery {

/// Gradients cross the axes that Program::reduce_as names as the type asked for: each term is cast before an all_reduce
/// or reduce_scatter, and the sum is cast back to the gradient's own type behind it. Only sums of wider floats that are
/// gradients of params, or what linear ops made of them, are concerned; the loss, norms and activations are not. What
/// leaves the loop over micro-batches with the message is cast once behind the loop: contributions are added up in the
/// gradient's own type. Linear in the program.
///
/// A term is rounded once, by at most 2^-9 of itself; what a transport sums in the narrow type is rounded again at each
/// of its additions.
void narrow_gradients(Program& program, const Mesh& mesh);

}  // namespace orrery
