#include "op_kernels.h"

#include <cstdint>
#include <vector>

#include "kernels/cpu/parallel.h"
#include "kernels/rules/rules.h"
#include "orrery/half.h"
#include "orrery/kernel.h"

namespace orrery::cpu_device {

namespace {

bool narrow(DType type) { return is_float(type) && type != DType::f64; }

template <class T>
T element(const Tensor& t, int64_t i) {
    return static_cast<const T*>(t.data)[i];
}

void widen(const Tensor& from, std::vector<double>& to) {
    for (int64_t i = 0; i < from.count(); ++i) {
        double& x = to[static_cast<size_t>(i)];
        if (from.dtype == DType::f32) x = static_cast<double>(element<float>(from, i));
        if (from.dtype == DType::bf16) x = static_cast<double>(widen_bf16(element<uint16_t>(from, i)));
        if (from.dtype == DType::f16) x = static_cast<double>(widen_f16(element<uint16_t>(from, i)));
    }
}

void round(const std::vector<double>& from, const Tensor& to) {
    for (int64_t i = 0; i < to.count(); ++i) {
        const auto x = static_cast<float>(from[static_cast<size_t>(i)]);
        if (to.dtype == DType::f32) static_cast<float*>(to.data)[i] = x;
        if (to.dtype == DType::bf16) static_cast<uint16_t*>(to.data)[i] = narrow_bf16(x);
        if (to.dtype == DType::f16) static_cast<uint16_t*>(to.data)[i] = narrow_f16(x);
    }
}

/// Slow, and allocates: it is what others are compared with.
Launch in_double(OpKernel kernel, size_t inputs) {
    return [kernel = std::move(kernel), inputs](kernels::Context& context, std::span<const Tensor> given) {
        std::vector<Tensor> operands(given.begin(), given.end());
        std::vector<std::vector<double>> wide(given.size());
        for (size_t i = 0; i < given.size(); ++i) {
            if (!narrow(given[i].dtype)) continue;
            wide[i].resize(static_cast<size_t>(given[i].count()));
            widen(given[i], wide[i]);  // outputs, too: they may be added to
            operands[i] = {wide[i].data(), DType::f64, given[i].shape};
        }
        const Threads one(1, kernels::cpu::run_team);
        kernel.launch({operands, context.scratch(kernel.scratch_bytes), &one, nullptr});
        for (size_t i = inputs; i < given.size(); ++i)
            if (narrow(given[i].dtype)) round(wide[i], given[i]);
    };
}

/// The same op of f64 operands.
KernelSpec widened(KernelSpec spec) {
    for (auto* side : {&spec.inputs, &spec.outputs})
        for (TensorType& type : *side)
            if (narrow(type.dtype)) type.dtype = DType::f64;
    return spec;
}

}  // namespace

std::optional<OpLaunch> plugin_launch(const KernelSpec& spec, int threads, bool reference) {
    if (reference) {
        // Before they are all f64, which agree where the given types do not.
        const bool own = kernels::rules::find_rule(spec.op) != nullptr;
        if (const std::string wrong = own ? "" : wrong_operands(spec); !wrong.empty()) throw Error(wrong);
        std::optional<OpKernel> kernel = plugin_kernel(widened(spec), "reference", 1);
        if (!kernel) return std::nullopt;
        const int64_t bytes = kernel->scratch_bytes;
        return OpLaunch{in_double(std::move(*kernel), spec.inputs.size()), bytes};
    }
    std::optional<OpKernel> kernel = plugin_kernel(spec, "cpu", threads);
    if (!kernel) return std::nullopt;
    const int64_t bytes = kernel->scratch_bytes;
    return OpLaunch{[run = std::move(kernel->launch), bytes, team = Threads(threads, kernels::cpu::run_team)](
                        kernels::Context& context, std::span<const Tensor> operands) {
                        run({operands, context.scratch(bytes), &team, nullptr});
                    },
                    bytes};
}

}  // namespace orrery::cpu_device
