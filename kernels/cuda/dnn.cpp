#include "kernels/cuda/own_attention.h"

namespace orrery::kernels::cuda {

Launch library_attention(const Attention& sizes, Type) { return own_attention(sizes); }

Launch library_attention_grad(const Attention& sizes, Type) { return own_attention_grad(sizes); }

}  // namespace orrery::kernels::cuda
