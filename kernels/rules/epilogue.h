#pragma once

namespace orrery::kernels::rules {

/// What happens to a product before it is written; a gelu writes what it was applied to as well.
enum class Epilogue { none, gelu_tanh, gelu_erf };

}  // namespace orrery::kernels::rules
