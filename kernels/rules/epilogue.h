#pragma once

namespace orrery::kernels::rules {

/// The function that is applied to a product before it is stored; a gelu stores its argument, too.
enum class Epilogue { none, gelu_tanh, gelu_erf };

}  // namespace orrery::kernels::rules
