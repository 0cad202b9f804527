#include "kernels/cuda/blas.h"

#include "kernels/cuda/blas_plan.h"
#include "kernels/cuda/check.h"
#include "kernels/cuda/rules.h"

namespace orrery::kernels::cuda {

BlasProduct::BlasProduct(const Matmul& sizes, Epilogue epilogue, bool bias)
    : sizes_(sizes), epilogue_(epilogue), bias_(bias) {}
BlasProduct::~BlasProduct() = default;

In BlasProduct::converted(Call& call, In x, i64 n, Type type) const {
    if (x.type == type) return x;
    const Out y(call.take(n * size_of(type)), type);
    if (call.rehearsal) call.how += "an operand converted, ";
    table().cast(call, x, y, n);
    return y;
}

void BlasProduct::direct(Call& call, In a, In b, In bias, Out y, Out pre, bool gelu, bool adds) {
    Matmul s = sizes_;
    s.accumulate = s.accumulate && adds;
    if (plan_ == nullptr) {
        const BlasRequest request{s, a.type, y.type, bias_, gelu, call.gpu->tf32};
        const std::string order = call.gpu->deterministic ? "" : " any order";
        plan_ = call.gpu->keep<BlasPlan>("product " + request.key() + order,
                                         [&] { return new BlasPlan(*call.gpu, request); });
    }
    void* const workspace = call.take(plan_->workspace());
    if (call.rehearsal) {
        call.how += plan_->how();
        return;
    }
    const BlasOperands operands{a.data, b.data, bias.data, y.data, pre.data};
    if (plan_->can(operands)) return plan_->run(*call.gpu, operands, workspace);
    if (gelu) return table().matmul_bias_gelu(call, s, Unary::gelu_tanh, a, b, bias, y, pre);
    table().matmul(call, s, a, b, bias, y);
}

void BlasProduct::operator()(Call& call, In a, In b, In bias, Out y, Out pre) {
    const Matmul& s = sizes_;
    const i64 n = s.batch * s.m * s.n;
    if (n == 0) return;
    const bool gelu = epilogue_ != Epilogue::none;
    if (s.k == 0) {  // nothing to multiply, but a bias to write
        if (!gelu) return table().matmul(call, s, a, b, bias, y);
        const Unary op = epilogue_ == Epilogue::gelu_erf ? Unary::gelu_erf : Unary::gelu_tanh;
        return table().matmul_bias_gelu(call, s, op, a, b, bias, y, pre);
    }
    const Type in = a.type == b.type ? a.type : Type::f32;
    a = converted(call, a, s.batch * s.m * s.k, in);
    b = converted(call, b, (s.shared_b ? 1 : s.batch) * s.k * s.n, in);
    // cuBLASLt's gelu is the tanh form, of 16-bit results whose rows are aligned.
    const bool fused =
        epilogue_ == Epilogue::gelu_tanh && s.n % 8 == 0 && in != Type::f32 && y.type == in && pre.type == in;
    const Out to = gelu && !fused ? pre : y;
    const bool writes = to.type == in || to.type == Type::f32;
    const Out made = writes ? to : Out(call.take(n * 4), Type::f32);
    if (bias_) bias = converted(call, bias, s.n, made.type);
    direct(call, a, b, bias, made, pre, fused, writes);
    if (!writes && s.accumulate) {
        const Shape shape(&n, 1);
        table().binary(call, Binary::add, to, shape, made, shape, to);
    } else if (!writes) {
        table().cast(call, made, to, n);
    }
    if (call.rehearsal && !writes) call.how += ", the result converted";
    if (call.rehearsal && gelu && !fused) call.how += ", own kernel for the gelu";
    if (gelu && !fused)
        table().unary(call, epilogue_ == Epilogue::gelu_erf ? Unary::gelu_erf : Unary::gelu_tanh, pre, y, n);
}

ProductCall library_product(const Matmul& sizes, Epilogue epilogue, bool bias) {
    return [product = std::make_shared<BlasProduct>(sizes, epilogue, bias)](
               Call& call, In a, In b, In bias_in, Out y, Out pre) { (*product)(call, a, b, bias_in, y, pre); };
}

}  // namespace orrery::kernels::cuda
