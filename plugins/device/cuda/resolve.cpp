#include "resolve.h"

#include "orrery/kernel.h"

namespace orrery::cuda_device {

namespace {

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

bool moved_only(DType type) {
    return type == DType::i64 || type == DType::u16 || type == DType::f8e4m3 || type == DType::f8e5m2;
}

std::vector<kernels::cuda::Operand> operands_of(const std::vector<TensorType>& types) {
    std::vector<kernels::cuda::Operand> operands;
    for (const TensorType& type : types) operands.push_back({type_of(type.dtype), type.shape, moved_only(type.dtype)});
    return operands;
}

}  // namespace

kernels::cuda::Spec spec_of(const KernelSpec& spec) {
    const std::string wrong = wrong_operands(spec, "f64 is for the reference kernels of the CPU alone");
    if (!wrong.empty()) throw Error("device cuda: " + wrong);
    return {spec.op, spec.attributes.items(), operands_of(spec.inputs), operands_of(spec.outputs)};
}

}  // namespace orrery::cuda_device
