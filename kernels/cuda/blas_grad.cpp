// Gradients that cuBLASLt fuses with a product; otherwise the product and a kernel of ours.
#include <memory>

#include "kernels/cuda/bias_grad.h"
#include "kernels/cuda/blas_plan.h"

namespace orrery::kernels::cuda {

namespace {

class GeluGrad {
public:
    GeluGrad(const Matmul& sizes, UnaryGrad op)
        : sizes_(sizes), op_(op), product_(library_product(sizes, Epilogue::none, false)) {}

    void operator()(Call& call, In a, In b, In pre, Out dx) {
        const Matmul& s = sizes_;
        const i64 n = s.batch * s.m * s.n;
        if (n == 0) return;
        const char* apart = why_apart(a, b, pre, dx);
        if (apart == nullptr && plan_ == nullptr)
            plan_ = BlasPlan::shared(*call.gpu, {s, dx.type, dx.type, false, BlasThen::gelu_grad, false});
        if (apart == nullptr && !plan_->can_aligned()) apart = "cuBLASLt has no algorithm for it";
        if (apart == nullptr) return fused(call, a, b, pre, dx);
        product_(call, a, b, {}, dx, {});
        if (call.rehearsal) call.how += std::string("; gelu's slope by our own kernel: ") + apart;
        table().unary_grad(call, op_, pre, dx, dx, n);
    }

private:
    /// Why cuBLASLt cannot fuse both; nullptr when its manual allows it.
    const char* why_apart(In a, In b, In pre, Out dx) const {
        if (op_ != UnaryGrad::gelu_tanh) return "cuBLASLt's gelu is the tanh form";
        if (dx.type == Type::f32 || a.type != dx.type || b.type != dx.type || pre.type != dx.type)
            return "cuBLASLt fuses it for operands of one 16-bit type";
        return sizes_.n % 8 == 0 && sizes_.k > 0 ? nullptr : "the rows of pre are not aligned to 16 bytes";
    }

    void fused(Call& call, In a, In b, In pre, Out dx) {
        void* const workspace = call.take(plan_->workspace());
        if (call.rehearsal) {
            call.how += plan_->how() + ", gelu's slope in it";
            return;
        }
        const BlasOperands operands{a.data, b.data, nullptr, dx.data, pre.data};
        if (operands.aligned()) return plan_->run(*call.gpu, operands, workspace);
        table().matmul_gelu_grad(call, sizes_, op_, a, b, pre, dx);
    }

    Matmul sizes_;
    UnaryGrad op_;
    ProductCall product_;
    std::shared_ptr<BlasPlan> plan_;
};

/// A plan of cuBLASLt as the library of bias_grad().
struct BiasGradPlan {
    BlasPlan& plan;
    Context& gpu;

    static BlasOperands operands(In a, In b, Out dw, Out sums) { return {a.data, b.data, sums.data, dw.data, nullptr}; }
    i64 workspace() const { return plan.workspace(); }
    bool takes(In a, In b, Out dw, Out sums) const { return operands(a, b, dw, sums).aligned(); }
    void run(In a, In b, Out dw, Out sums, void* workspace) const {
        plan.run(gpu, operands(a, b, dw, sums), workspace);
    }
};

/// dw (+)= a b and dbias (+)= the sum of the rows of b. The epilogue overwrites dbias and cannot add to it.
class BiasGrad {
public:
    explicit BiasGrad(const Matmul& sizes) : sizes_(sizes), product_(library_product(sizes, Epilogue::none, false)) {}

    void operator()(Call& call, In a, In b, Out dw, Out dbias) {
        const Matmul& s = sizes_;
        const bool half = a.type == b.type && a.type != Type::f32 && dw.type == Type::f32 && s.k > 0 && s.m > 0;
        if (half && plan_ == nullptr)
            plan_ = BlasPlan::shared(*call.gpu, {s, a.type, dw.type, false, BlasThen::bias_grad, false});
        if (half && plan_->can_aligned()) return fused(call, a, b, dw, dbias);
        product_(call, a, b, {}, dw, {});
        if (call.rehearsal) {
            call.how += "; the bias by our own kernel: ";
            call.how += half ? "cuBLASLt has no algorithm for both" : "cuBLASLt is asked for it with 16-bit operands";
        }
        sum_rows(call, s, b, dbias);
    }

private:
    void fused(Call& call, In a, In b, Out dw, Out dbias) {
        BiasGradPlan library{*plan_, *call.gpu};
        bias_grad(call, sizes_, library, a, b, dw, dbias);
        if (call.rehearsal) call.how += plan_->how() + ", the bias in it";
    }

    Matmul sizes_;
    ProductCall product_;
    std::shared_ptr<BlasPlan> plan_;
};

}  // namespace

GeluGradCall library_gelu_grad(const Matmul& sizes, UnaryGrad op) {
    return [run = std::make_shared<GeluGrad>(sizes, op)](Call& call, In a, In b, In pre, Out dx) {
        (*run)(call, a, b, pre, dx);
    };
}

BiasGradCall library_bias_grad(const Matmul& sizes) {
    return [run = std::make_shared<BiasGrad>(sizes)](Call& call, In a, In b, Out dw, Out dbias) {
        (*run)(call, a, b, dw, dbias);
    };
}

}  // namespace orrery::kernels::cuda
