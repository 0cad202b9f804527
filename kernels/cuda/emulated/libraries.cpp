// The emulated build has no libraries: products and attention use the kernels of this folder.
#include "kernels/cuda/bias_grad.h"
#include "kernels/cuda/own_attention.h"

namespace orrery::kernels::emulated {

ProductCall library_product(const Matmul& s, Epilogue epilogue, bool, bool) {
    return [s, epilogue](Call& call, In a, In b, In bias, Out y, Out pre) {
        if (epilogue == Epilogue::none) return table().matmul(call, s, a, b, bias, y);
        const Unary op = epilogue == Epilogue::gelu_erf ? Unary::gelu_erf : Unary::gelu_tanh;
        table().matmul_bias_gelu(call, s, op, a, b, bias, y, pre);
    };
}

GeluGradCall library_gelu_grad(const Matmul& s, UnaryGrad op) {
    return [s, op](Call& call, In a, In b, In pre, Out dx) { table().matmul_gelu_grad(call, s, op, a, b, pre, dx); };
}

BiasGradCall library_bias_grad(const Matmul& s) {
    return [s](Call& call, In a, In b, Out dw, Out dbias) {
        table().matmul(call, s, a, b, {}, dw);
        sum_rows(call, s, b, dbias);
    };
}

Launch library_attention(const Attention& sizes, Type) { return own_attention(sizes); }

Launch library_attention_grad(const Attention& sizes, Type) { return own_attention_grad(sizes); }

}  // namespace orrery::kernels::emulated
