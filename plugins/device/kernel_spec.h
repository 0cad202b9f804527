// A kernel's spec in the words of `kernels/`, for the devices that run those.
#pragma once

#include "kernels/rules/spec.h"
#include "orrery/kernel.h"

namespace orrery {

inline kernels::Type kernel_type(DType type) {
    switch (type) {
        case DType::f32: return kernels::Type::f32;
        case DType::f64: return kernels::Type::f64;
        case DType::bf16: return kernels::Type::bf16;
        case DType::f16: return kernels::Type::f16;
        case DType::i32: return kernels::Type::i32;
        case DType::u32: return kernels::Type::u32;
        case DType::u8: return kernels::Type::u8;
        case DType::i8: return kernels::Type::i8;
        case DType::f8e4m3: return kernels::Type::f8e4m3;
        case DType::f8e5m2: return kernels::Type::f8e5m2;
        // only_moved(): any type of the same width does.
        case DType::i64: return kernels::Type::f64;
        case DType::u16: return kernels::Type::f16;
    }
    return kernels::Type::f32;
}

/// Whether no kernel computes with it.
inline bool only_moved(DType type) {
    return type == DType::i64 || type == DType::u16 || type == DType::f8e4m3 || type == DType::f8e5m2;
}

/// The same op, attributes and operands. Throws Error, "device NAME: ...", where the op has no such operands. `no_f64`:
/// why none may be f64; "": they may.
inline kernels::rules::Spec kernel_spec(const KernelSpec& spec, const std::string& device, std::string_view no_f64) {
    if (const std::string wrong = wrong_operands(spec, no_f64); !wrong.empty())
        throw Error("device " + device + ": " + wrong);
    const auto operands = [](const std::vector<TensorType>& types) {
        std::vector<kernels::rules::Operand> all;
        for (const TensorType& type : types)
            all.push_back({kernel_type(type.dtype), type.shape, only_moved(type.dtype)});
        return all;
    };
    return {spec.op, spec.attributes.items(), operands(spec.inputs), operands(spec.outputs)};
}

}  // namespace orrery
