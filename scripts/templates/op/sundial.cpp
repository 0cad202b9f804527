// The op sundial: y = x + sin^2(rate x) / rate, an activation with waves (Snake, arXiv 2006.08195). Replace types,
// infer, rule, backward and the kernels by those of your op; orrery/op.h and orrery/kernel.h say what each must keep.
#include <cmath>

#include "orrery/backward.h"
#include "orrery/kernel.h"
#include "orrery/op.h"
#include "orrery/plugin.h"

/// In sundial.cu: n floats in the GPU's memory, on its stream; returns CUDA's words where the launch fails, or nullptr.
const char* sundial_on_gpu(void* stream, const float* x, float* y, int64_t n, float rate);

namespace {

using namespace orrery;

/// y is as x in type and in the names of its dims.
std::vector<Typed> infer(Infer& at) {
    if (at.attributes.number("rate") == 0) at.fail("rate is 0", "give another rate");
    return {at.typed(0)};
}

/// Each dim is a factor of its own, which may be split: no element needs another.
FactorRule rule(const Program& program, const Op& op) {
    RuleMaker make;
    FactorRule::Dims dims;
    for (const int64_t size : program.value(op.inputs[0]).type.shape) dims.push_back(make.parallel(size));
    make.rule.inputs = make.rule.outputs = {dims};
    return make.rule;
}

/// dx = dy (1 + sin(2 rate x)), in ops of the table. An op of your own, called sundial_something, may stand here, too:
/// then give it to add_op as well, with its kernels.
void backward(Backward& g) {
    const ValueId twice = g.one("scale", {g.in(0)}, {{"by", 2 * g.attributes().number("rate")}});
    const ValueId dy = g.dy();
    g.give(0, g.one("add", {dy, g.one("mul", {dy, g.one("sin", {twice})})}));
}

/// Optional: replaces the op by others for some layouts of x. It adds ops that make all outputs and returns true, or
/// adds none and returns false; then the kernels run. An op that needs all of a split dim would compute here with a
/// rank's part of it, and reduce over the axis: a sum over a split dim becomes an all-reduce. This op needs no other
/// element, so it is only an example: where the last dim is split, ops of the table replace it.
bool decompose(const OpLayouts& at, const AddPart& add) {
    const auto axes = at.inputs[0].splits();  // by dim: the axes that split it
    if (axes.empty() || axes.back().empty()) return false;
    const ValueId x = at.op.inputs[0];
    const double rate = at.op.attributes.number("rate");
    const ValueId turned = add("scale", {x}, {{"by", rate}}, {}).front();
    const ValueId wave = add("sin", {turned}, {}, {}).front();
    const ValueId square = add("mul", {wave, wave}, {}, {}).front();
    add("add", {x, add("scale", {square}, {{"by", 1 / rate}}, {}).front()}, {}, at.op.outputs);
    return true;
}

/// Of the whole op: here some ten an element.
int64_t flops(const Program& program, const Op& op) { return 10 * program.value(op.outputs[0]).type.count(); }

/// What the generated tests run: gradients, layouts, kernels, text.
std::vector<OpSample> samples() {
    return {{{{DType::f32, {6, 4}}}, {}, {{"batch", "mlp"}}}, {{{DType::f32, {3, 15, 9}}}, {{"rate", 2.5}}}};
}

/// On the CPU, with the rank's threads; and as the reference, which is asked for in f64.
OpKernel kernel(const KernelSpec& spec, int) {
    return kernel_of_floats(spec, spec.inputs[0].dtype, [&]<class T, class C>(T, C) -> OpKernel {
        return {[rate = static_cast<C>(spec.attributes.number("rate", 1))](const KernelCall& call) {
            const T* x = call.in<T>(0);
            T* y = call.out<T>(1);  // may be x: see in_place
            constexpr int64_t grain = 4096;
            call.threads->parallel_for(call.operands[0].count(), grain, [=](int64_t begin, int64_t end) {
                for (int64_t i = begin; i < end; ++i) {
                    const C at = x[i], wave = std::sin(rate * at);
                    y[i] = at + wave * wave / rate;
                }
            });
        }};
    });
}

#ifdef ORRERY_CUDA
OpKernel cuda_kernel(const KernelSpec& spec, int) {
    if (spec.inputs[0].dtype != DType::f32) throw Error("op sundial runs in f32 only on a GPU: add your types");
    const auto rate = static_cast<float>(spec.attributes.number("rate", 1));
    return {[rate, n = spec.inputs[0].count()](const KernelCall& call) {
        if (const char* failure = sundial_on_gpu(call.stream, call.in<float>(0), call.out<float>(1), n, rate))
            throw Error(std::string("op sundial: its launch: ") + failure, Fault::failed);
    }};
}
#endif

void add(Registry& registry) {
    registry.add_op({.name = "sundial",
                     .operands = {"x"},
                     .types = "f -> f",
                     .attributes = {{"rate", AttributeDef::Kind::number, false, 1.0}},
                     .infer = infer,
                     .rule = rule,
                     .gradient = backward,
                     .decompose = decompose,
                     .flops = flops,
                     .in_place = {{0, 0}},
                     .samples = samples});
    registry.add_kernel("sundial", "cpu", kernel);
    registry.add_kernel("sundial", "reference", kernel);
#ifdef ORRERY_CUDA
    registry.add_kernel("sundial", "cuda", cuda_kernel);
#endif
}

}  // namespace

ORRERY_PLUGIN("op.sundial", "0.1", add);
