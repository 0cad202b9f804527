#include "kernels/cuda/blas.h"

#include "kernels/cuda/blas_plan.h"
#include "kernels/cuda/check.h"
#include "kernels/cuda/rules.h"

namespace orrery::kernels::cuda {

BlasProduct::BlasProduct(const Matmul& sizes, Epilogue epilogue, bool bias, bool keeps_pre)
    : sizes_(sizes), epilogue_(epilogue), bias_(bias), keeps_pre_(keeps_pre) {}
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
        const BlasThen then = !gelu ? BlasThen::nothing : keeps_pre_ ? BlasThen::gelu_aux : BlasThen::gelu;
        plan_ = BlasPlan::shared(*call.gpu, {s, a.type, y.type, bias_, then, call.gpu->tf32});
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
    if (s.k == 0) {  // no product, but there may be a bias to write
        if (!gelu) return table().matmul(call, s, a, b, bias, y);
        const Unary op = epilogue_ == Epilogue::gelu_erf ? Unary::gelu_erf : Unary::gelu_tanh;
        return table().matmul_bias_gelu(call, s, op, a, b, bias, y, pre);
    }
    const Type in = a.type == b.type ? a.type : Type::f32;
    a = converted(call, a, s.batch * s.m * s.k, in);
    b = converted(call, b, (s.shared_b ? 1 : s.batch) * s.k * s.n, in);
    const Out made = gelu && keeps_pre_ ? pre : y;
    // cuBLASLt's gelu is the tanh form, for 16-bit results with aligned rows.
    const bool fused =
        epilogue_ == Epilogue::gelu_tanh && s.n % 8 == 0 && in != Type::f32 && y.type == in && made.type == in;
    const Out to = fused ? y : made;
    const bool writes = to.type == in || to.type == Type::f32;
    const Out sums = writes ? to : Out(call.take(n * 4), Type::f32);
    if (bias_) bias = converted(call, bias, s.n, sums.type);
    direct(call, a, b, bias, sums, pre, fused, writes);
    if (!writes && s.accumulate) {
        const Shape shape(&n, 1);
        table().binary(call, Binary::add, to, shape, sums, shape, to);
    } else if (!writes) {
        table().cast(call, sums, to, n);
    }
    if (call.rehearsal && !writes) call.how += ", the result converted";
    if (call.rehearsal && gelu && !fused) call.how += ", own kernel for the gelu";
    if (gelu && !fused)
        table().unary(call, epilogue_ == Epilogue::gelu_erf ? Unary::gelu_erf : Unary::gelu_tanh, made, y, n);
}

ProductCall library_product(const Matmul& sizes, Epilogue epilogue, bool bias, bool keeps_pre) {
    return [product = std::make_shared<BlasProduct>(sizes, epilogue, bias, keeps_pre)](
               Call& call, In a, In b, In bias_in, Out y, Out pre) { (*product)(call, a, b, bias_in, y, pre); };
}

}  // namespace orrery::kernels::cuda
