#pragma once
#include <functional>

#include "orrery/device.h"
#include "orrery/program.h"

namespace orrery {

/// Joins ops of a propagated program that one kernel does in one pass, where no collective came between them:
///   matmul with bias, gelu          -> matmul_bias_gelu  y, and what the gelu was applied to where that is read
///   matmul dy w^T, gelu_grad        -> matmul_gelu_grad  gelu'(pre) (dy w^T)
///   matmul_dw, sum of dy over rows  -> matmul_dw_bias    the gradients of a weight and its bias
///   add, layernorm or rmsnorm       -> that norm         with a residual: y, its statistics, and the sum
///   a norm's gradient, add          -> that gradient     dx, and what reaches x round the norm
/// Strategies and propagation see the plain ops. Values keep their ids; one that nothing needs any more is made by no
/// op. Ops move to the later of the two places, but sums of gradients to the op that they join. Linear in the size of
/// the program.
/// `runs`: whether there is a kernel for an op that would be made; empty: for all of them.
Program fuse(Program program, const std::function<bool(const Program&, const Op&)>& runs = {});

/// The same of a propagated program, as far as the device runs the fused ops' kernels on the blocks that ranks have.
/// `runs`: whether it has a kernel; empty: all.
Program fuse_for(Program propagated, const Mesh& mesh, const std::function<bool(const KernelSpec&)>& runs);

}  // namespace orrery
