// y = x sigmoid(beta x) g: a gated activation, with its gradient as an op of its own.
#include "swish_gate.h"

#include "orrery/backward.h"
#include "orrery/half.h"
#include "orrery/kernel.h"
#include "orrery/op.h"
#include "orrery/plugin.h"

namespace {

using namespace orrery;

constexpr int64_t grain = 8192;  ///< elements of a thread: some 50 us

// ---- what the ops are

std::vector<Typed> infer_value(Infer& at) {
    at.expect_float(0);
    return {at.same_type(0, 1)};
}

std::vector<Typed> infer_gradient(Infer& at) {
    at.expect_float(0);
    const Typed x = at.same_type(0, 1);
    at.same_type(0, 2);
    return {x, x};
}

/// Element by element: each dim is one factor, which may be split.
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
    const TensorType small{DType::f32, {6, 4}}, odd{DType::f32, {3, 5, 9}};
    return {{std::vector(operands, small), {}, std::vector(operands, std::vector<std::string>{"batch", "mlp"})},
            {std::vector(operands, odd), {{"beta", 1.75}}}};
}

// ---- kernels

/// A type of elements, read and written in the type it is computed in.
template <class Stored>
struct Element {
    using Computed = Stored;
    static Computed read(const void* data, int64_t i) { return static_cast<const Stored*>(data)[i]; }
    static void write(void* data, int64_t i, Computed x) { static_cast<Stored*>(data)[i] = x; }
};

template <float widen(uint16_t), uint16_t narrow(float)>
struct Half {
    using Computed = float;
    static float read(const void* data, int64_t i) { return widen(static_cast<const uint16_t*>(data)[i]); }
    static void write(void* data, int64_t i, float x) { static_cast<uint16_t*>(data)[i] = narrow(x); }
};

template <class E>
void values(const KernelCall& call, double beta) {
    using T = typename E::Computed;
    const void *x = call.operands[0].data, *g = call.operands[1].data;
    void* y = call.operands[2].data;
    call.threads->parallel_for(call.operands[0].count(), grain, [=](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i)
            E::write(y, i, swish_gate::value(E::read(x, i), E::read(g, i), static_cast<T>(beta)));
    });
}

template <class E>
void gradients(const KernelCall& call, double beta) {
    using T = typename E::Computed;
    const void *x = call.operands[0].data, *g = call.operands[1].data, *dy = call.operands[2].data;
    void *dx = call.operands[3].data, *dg = call.operands[4].data;
    call.threads->parallel_for(call.operands[0].count(), grain, [=](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
            T of_x, of_g;
            swish_gate::gradient(E::read(x, i), E::read(g, i), E::read(dy, i), static_cast<T>(beta), of_x, of_g);
            E::write(dx, i, of_x);
            E::write(dg, i, of_g);
        }
    });
}

template <class E>
OpKernel kernel_of(bool is_gradient, double beta) {
    if (is_gradient) return {[beta](const KernelCall& call) { gradients<E>(call, beta); }};
    return {[beta](const KernelCall& call) { values<E>(call, beta); }};
}

bool is_gradient(const KernelSpec& spec) { return spec.op == "swish_gate_grad"; }

[[noreturn]] void refuse(const KernelSpec& spec, DType type) {
    throw Error("op " + spec.op + " does not run in " + std::string(name_of(type)) + " here");
}

/// In f32, for the types of a run; 16 bits are rounded once.
OpKernel cpu_kernel(const KernelSpec& spec, int) {
    const double beta = spec.attributes.number("beta", 1);
    switch (const DType type = spec.inputs[0].dtype) {
        case DType::f32: return kernel_of<Element<float>>(is_gradient(spec), beta);
        case DType::bf16: return kernel_of<Half<widen_bf16, narrow_bf16>>(is_gradient(spec), beta);
        case DType::f16: return kernel_of<Half<widen_f16, narrow_f16>>(is_gradient(spec), beta);
        default: refuse(spec, type);
    }
}

/// In f64: what the others are compared with.
OpKernel reference_kernel(const KernelSpec& spec, int) {
    return kernel_of<Element<double>>(is_gradient(spec), spec.attributes.number("beta", 1));
}

#ifdef ORRERY_CUDA
OpKernel cuda_kernel(const KernelSpec& spec, int) {
    using swish_gate::Type;
    const DType stored = spec.inputs[0].dtype;
    if (stored != DType::f32 && stored != DType::bf16 && stored != DType::f16) refuse(spec, stored);
    const Type type = stored == DType::f32 ? Type::f32 : stored == DType::bf16 ? Type::bf16 : Type::f16;
    const auto beta = static_cast<float>(spec.attributes.number("beta", 1));
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
                     .attributes = attributes(),
                     .infer = infer_value,
                     .rule = rule,
                     .gradient = backward,
                     .flops = flops,
                     .in_place = {{0, 0}, {0, 1}},
                     .samples = [] { return samples_of(2); }});
    registry.add_op({.name = "swish_gate_grad",
                     .operands = {"x", "g", "dy"},
                     .attributes = attributes(),
                     .infer = infer_gradient,
                     .rule = rule,
                     .flops = flops,
                     .in_place = {{0, 0}, {1, 1}},
                     .samples = [] { return samples_of(3); }});
    for (const char* op : {"swish_gate", "swish_gate_grad"}) {
        registry.add_kernel(op, "cpu", cpu_kernel);
        registry.add_kernel(op, "reference", reference_kernel);
#ifdef ORRERY_CUDA
        registry.add_kernel(op, "cuda", cuda_kernel);
#endif
    }
}

}  // namespace

ORRERY_PLUGIN("op.swish_gate", "0.1", add);
