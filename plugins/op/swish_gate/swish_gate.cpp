// y = x sigmoid(beta x) g: a gated activation, and its gradient as an op of its own.
#include "swish_gate.h"

#include "orrery/backward.h"
#include "orrery/kernel.h"
#include "orrery/op.h"
#include "orrery/plugin.h"

namespace {

using namespace orrery;

constexpr int64_t grain = 8192;  ///< elements per task: some 50 us

// ---- the ops

std::vector<Typed> infer_value(Infer& at) { return {at.same_type(0, 1)}; }

std::vector<Typed> infer_gradient(Infer& at) {
    const Typed x = at.same_type(0, 1);
    at.same_type(0, 2);
    return {x, x};
}

/// Elementwise: each dim is one factor, which may be split.
FactorRule rule(const Program& program, const Op& op) {
    RuleMaker make;
    FactorRule::Dims dims;
    for (const int64_t size : program.value(op.inputs[0]).type.shape) dims.push_back(make.parallel(size));
    make.rule.inputs.assign(op.inputs.size(), dims);
    make.rule.outputs.assign(op.outputs.size(), dims);
    return make.rule;
}

int64_t flops(const Program& program, const Op& op) { return 10 * program.value(op.outputs[0]).type.count(); }

void backward(Backward& g) {
    const auto d = g.add("swish_gate_grad", {g.in(0), g.in(1), g.dy()}, g.attributes());
    g.give(0, d[0]);
    g.give(1, d[1]);
}

std::vector<AttributeDef> attributes() { return {{"beta", AttributeDef::Kind::number, false, 1.0}}; }

std::vector<OpSample> samples_of(size_t operands) {
    const TensorType small{DType::f32, {6, 4}}, odd{DType::f32, {3, 15, 9}};
    return {{std::vector(operands, small), {}, std::vector(operands, std::vector<std::string>{"batch", "mlp"})},
            {std::vector(operands, odd), {{"beta", 1.75}}}};
}

// ---- kernels

bool is_gradient(const KernelSpec& spec) { return spec.op == "swish_gate_grad"; }
double beta_of(const KernelSpec& spec) { return spec.attributes.number("beta", 1); }

template <class T, class C>
OpKernel value_kernel(C beta) {
    return {[beta](const KernelCall& call) {
        const T *x = call.in<T>(0), *g = call.in<T>(1);
        T* y = call.out<T>(2);
        call.threads->parallel_for(call.operands[0].count(), grain, [=](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) y[i] = swish_gate::value<C>(x[i], g[i], beta);
        });
    }};
}

template <class T, class C>
OpKernel gradient_kernel(C beta) {
    return {[beta](const KernelCall& call) {
        const T *x = call.in<T>(0), *g = call.in<T>(1), *dy = call.in<T>(2);
        T *dx = call.out<T>(3), *dg = call.out<T>(4);
        call.threads->parallel_for(call.operands[0].count(), grain, [=](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) {
                C of_x, of_g;  // both are computed before either is written: dx may alias x, and dg may alias g
                swish_gate::gradient<C>(x[i], g[i], dy[i], beta, of_x, of_g);
                dx[i] = of_x;
                dg[i] = of_g;
            }
        });
    }};
}

/// The kernel of the CPU, and of the reference in f64.
OpKernel kernel(const KernelSpec& spec, int) {
    return kernel_of_floats(spec, spec.inputs[0].dtype, [&]<class T, class C>(T, C) {
        const auto beta = static_cast<C>(beta_of(spec));
        return is_gradient(spec) ? gradient_kernel<T>(beta) : value_kernel<T>(beta);
    });
}

#ifdef ORRERY_CUDA
OpKernel cuda_kernel(const KernelSpec& spec, int) {
    using swish_gate::Type;
    const DType stored = spec.inputs[0].dtype;
    if (stored != DType::f32 && stored != DType::bf16 && stored != DType::f16)
        throw Error("op " + spec.op + " does not run in " + std::string(name_of(stored)) + " on a GPU");
    const Type type = stored == DType::f32 ? Type::f32 : stored == DType::bf16 ? Type::bf16 : Type::f16;
    const auto beta = static_cast<float>(beta_of(spec));
    const int64_t n = spec.inputs[0].count();
    if (is_gradient(spec))
        return {[=](const KernelCall& c) {
            const auto& t = c.operands;
            swish_gate::launch_gradient(c.stream, type, t[0].data, t[1].data, t[2].data, t[3].data, t[4].data, n, beta);
        }};
    return {[=](const KernelCall& c) {
        swish_gate::launch_value(c.stream, type, c.operands[0].data, c.operands[1].data, c.operands[2].data, n, beta);
    }};
}
#endif

void add(Registry& registry) {
    registry.add_op({.name = "swish_gate",
                     .operands = {"x", "g"},
                     .types = "f f -> f",
                     .attributes = attributes(),
                     .infer = infer_value,
                     .rule = rule,
                     .gradient = backward,
                     .flops = flops,
                     .in_place = {{0, 0}, {0, 1}},
                     .samples = [] { return samples_of(2); }});
    registry.add_op({.name = "swish_gate_grad",
                     .operands = {"x", "g", "dy"},
                     .types = "f f f -> f f",
                     .attributes = attributes(),
                     .infer = infer_gradient,
                     .rule = rule,
                     .flops = flops,
                     .in_place = {{0, 0}, {1, 1}},
                     .samples = [] { return samples_of(3); }});
    for (const char* op : {"swish_gate", "swish_gate_grad"}) {
        registry.add_kernel(op, "cpu", kernel);
        registry.add_kernel(op, "reference", kernel);
#ifdef ORRERY_CUDA
        registry.add_kernel(op, "cuda", cuda_kernel);
#endif
    }
}

}  // namespace

ORRERY_PLUGIN("op.swish_gate", "0.1", add);
