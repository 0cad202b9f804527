// Ops that say of themselves what is not so: y = 2 x, wrong_linear 2 x + 1, wrong_rule the sums of 2 x up to each
// element of a row.
#include "orrery/backward.h"
#include "orrery/kernel.h"
#include "orrery/op.h"
#include "orrery/plugin.h"

namespace {

using namespace orrery;

std::vector<Typed> infer(Infer& at) { return {at.typed(0)}; }

/// Another attribute each time: what is checked again differs.
std::vector<Typed> infer_by_place(Infer& at) {
    at.attributes.set("place", at.op_count());
    return infer(at);
}

FactorRule rule(const Program& program, const Op& op) {
    RuleMaker make;
    FactorRule::Dims dims;
    for (const int64_t size : program.value(op.inputs[0]).type.shape) dims.push_back(make.parallel(size));
    make.rule.inputs = make.rule.outputs = {dims};
    if (op.kind == "wrong_linear") make.rule.linear_in = {0};
    return make.rule;
}

int64_t flops(const Program& program, const Op& op) { return program.value(op.outputs[0]).type.count(); }

template <int twice>
void backward(Backward& g) {
    g.give(0, g.one("scale", {g.dy()}, {{"by", static_cast<double>(twice)}}));
}

std::vector<OpSample> samples() { return {{{{DType::f32, {4, 9}}}}}; }

template <class T>
OpKernel kernel(const KernelSpec& spec, double factor) {
    const bool running = spec.op == "wrong_rule";
    const T more = spec.op == "wrong_linear" ? 1 : 0;
    return {[=](const KernelCall& call) {
        const int64_t row = call.operands[0].shape.back();
        T sum = 0;
        for (int64_t i = 0; i < call.operands[0].count(); ++i) {
            const T x = static_cast<T>(factor) * call.in<T>(0)[i] + more;
            sum = running && i % row != 0 ? sum + x : x;
            call.out<T>(1)[i] = sum;
        }
    }};
}

OpKernel cpu(const KernelSpec& spec, int) {
    if (spec.inputs[0].dtype != DType::f32) throw Error("op " + spec.op + " runs in f32 alone");
    if (spec.op == "wrong_place")  // reads what an output in place has overwritten
        return {[](const KernelCall& call) {
            const int64_t n = call.operands[0].count();
            for (int64_t i = 0; i < n; ++i) call.out<float>(1)[i] = 0;
            for (int64_t i = 0; i < n; ++i) call.out<float>(1)[i] = 2 * call.in<float>(0)[i];
        }};
    return kernel<float>(spec, spec.op == "wrong_kernel" ? 2.0001 : 2);
}

OpKernel reference(const KernelSpec& spec, int) { return kernel<double>(spec, 2); }

void add(Registry& registry) {
    const auto op = [&](std::string_view name) {
        OpDef def{.name = name,
                  .operands = {"x"},
                  .types = "f -> f",
                  .infer = infer,
                  .rule = rule,
                  .gradient = backward<2>,
                  .flops = flops,
                  .samples = samples};
        if (name == "wrong_gradient") def.gradient = backward<3>;
        if (name == "wrong_rule") def.gradient = nullptr;
        if (name == "wrong_constant") def.constant_outputs = {0};
        if (name == "wrong_text") def.infer = infer_by_place, def.attributes = {{"place", AttributeDef::Kind::integer}};
        if (name == "wrong_trait") def.multiplies = {0}, def.reduces = true;
        if (name == "wrong_place") def.in_place = {{0, 0}};
        if (name == "wrong_samples") def.samples = nullptr;
        registry.add_op(def);
        registry.add_kernel(std::string(name), "cpu", cpu);
        registry.add_kernel(std::string(name), "reference", reference);
    };
    for (const char* name : {"wrong", "wrong_gradient", "wrong_constant", "wrong_rule", "wrong_linear", "wrong_kernel",
                             "wrong_place", "wrong_text", "wrong_trait", "wrong_samples"})
        op(name);
}

}  // namespace

ORRERY_PLUGIN("op.wrong", "0.1", add);
