#include "resolve.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "orrery/kernel.h"
#include "target.h"

namespace orrery::cpu_device {

kernels::Type type_of(DType type) {
    switch (type) {
        case DType::f32: return kernels::Type::f32;
        case DType::f64: return kernels::Type::f64;
        case DType::bf16: return kernels::Type::bf16;
        case DType::f16: return kernels::Type::f16;
        case DType::i32: return kernels::Type::i32;
        case DType::u32: return kernels::Type::u32;
        case DType::u8: return kernels::Type::u8;
        // Only moved, never computed with: any type of the same width does.
        case DType::i64: return kernels::Type::f64;
        case DType::u16: return kernels::Type::f16;
        case DType::f8e4m3:
        case DType::f8e5m2: return kernels::Type::u8;
    }
    return kernels::Type::f32;
}

namespace {

bool moved_only(DType type) {
    return type == DType::i64 || type == DType::u16 || type == DType::f8e4m3 || type == DType::f8e5m2;
}

std::vector<kernels::rules::Operand> operands_of(const std::vector<TensorType>& types) {
    std::vector<kernels::rules::Operand> operands;
    for (const TensorType& type : types) operands.push_back({type_of(type.dtype), type.shape, moved_only(type.dtype)});
    return operands;
}

}  // namespace

int64_t scratch_of(const KernelSpec& spec, const Launch& launch, int threads, kernels::Products products) {
    const kernels::rules::KernelRule* rule = kernels::rules::find_rule(spec.op);
    if (rule == nullptr || !rule->scratch) return 0;
    kernels::Context counting(threads);
    counting.only_count();
    counting.use(products);
    std::vector<Tensor> operands;
    // Never touched: the kernel is left where it asks for scratch.
    for (const auto* side : {&spec.inputs, &spec.outputs})
        for (const TensorType& type : *side) operands.push_back({&counting, type.dtype, type.shape});
    try {
        launch(counting, operands);
    } catch (const kernels::Context::Counted& counted) {
        return counted.bytes;
    }
    return 0;
}

int64_t scratch_of(const KernelSpec& spec, const Launch& launch, int threads) {
    int64_t most = 0;
    for (const kernels::Products products : kernels::all_products)
        most = std::max(most, scratch_of(spec, launch, threads, products));
    return most;
}

Launch resolve(const KernelSpec& spec, const kernels::Kernels& kernels, bool reference) {
    if (const std::string wrong = wrong_operands(spec, reference ? "" : "f64 needs device.cpu.reference = true");
        !wrong.empty())
        throw Error("device cpu: " + wrong);
    const kernels::rules::Spec said{spec.op, spec.attributes.items(), operands_of(spec.inputs),
                                    operands_of(spec.outputs)};
    std::vector<kernels::rules::Tensor> operands;  // here, since a launch allocates nothing
    for (const auto* side : {&spec.inputs, &spec.outputs})
        for (const TensorType& type : *side) operands.push_back({nullptr, type_of(type.dtype), type.bytes()});
    try {
        return [run = kernels::rules::resolve(said, target(kernels)), operands](kernels::Context& context,
                                                                                std::span<const Tensor> given) mutable {
            for (size_t i = 0; i < operands.size(); ++i) operands[i].data = given[i].data;
            run(context, operands);
        };
    } catch (const kernels::rules::Refused& refused) {
        throw Error(std::string("device cpu: ") + refused.what());
    }
}

}  // namespace orrery::cpu_device
