// The emulated build has no libraries: products and attention by the kernels of this folder.
#include "kernels/cuda/own_attention.h"

namespace orrery::kernels::emulated {

ProductCall library_product(const Matmul& s, Epilogue epilogue, bool) {
    return [s, epilogue](Call& call, In a, In b, In bias, Out y, Out pre) {
        if (epilogue == Epilogue::none) return table().matmul(call, s, a, b, bias, y);
        const Unary op = epilogue == Epilogue::gelu_erf ? Unary::gelu_erf : Unary::gelu_tanh;
        table().matmul_bias_gelu(call, s, op, a, b, bias, y, pre);
    };
}

Launch library_attention(const Attention& sizes, Type) { return own_attention(sizes); }

Launch library_attention_grad(const Attention& sizes, Type) { return own_attention_grad(sizes); }

}  // namespace orrery::kernels::emulated
