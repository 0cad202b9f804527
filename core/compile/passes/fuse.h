#pragma once
#include <functional>

#include "orrery/device.h"
#include "orrery/program.h"

namespace orrery {

/// Replaces pairs of ops of a propagated program by one op whose kernel does both, when no collective is between them:
///   matmul with bias, gelu          -> matmul_bias_gelu  y, and the input of the gelu if it is needed
///   matmul dy w^T, gelu_grad        -> matmul_gelu_grad  gelu'(pre) (dy w^T)
///   matmul_dw, sum of dy over rows  -> matmul_dw_bias    the gradients of a weight and its bias
///   add, layernorm or rmsnorm       -> that norm         with a residual: y, its statistics, and the sum
///   gradient of a norm, add         -> that gradient     dx plus the gradient of the residual connection
/// Values keep their ids; a value that is not needed any more has no op. Sums of gradients move to the op that they are
/// fused with, others to the later of the two places. `runs`: whether the fused op has a kernel; empty: always. Linear.
///
///     %3 = matmul %0 %1 %2  f32[8,2048]   ->   %4 = matmul_bias_gelu %0 %1 %2 {drop_pre=true}  f32[8,2048]
///     %4 = gelu %3          f32[8,2048]
Program fuse(Program program, const std::function<bool(const Program&, const Op&)>& runs = {});

/// Fuses pairs of ops if the device has a kernel for both. `runs`: whether it has a kernel; empty: it has all.
Program fuse_for(Program propagated, const Mesh& mesh, const std::function<bool(const KernelSpec&)>& runs);

}  // namespace orrery
