#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

#include "orrery/api.h"

namespace orrery {

enum class DType : uint8_t { f32, bf16, f16, f64, i32, i64, u32, u16, u8, f8e4m3, f8e5m2, i8 };

/// Bytes of one element.
constexpr int64_t size_of(DType t) {
    switch (t) {
        case DType::f64:
        case DType::i64: return 8;
        case DType::f32:
        case DType::i32:
        case DType::u32: return 4;
        case DType::bf16:
        case DType::f16:
        case DType::u16: return 2;
        case DType::u8:
        case DType::f8e4m3:
        case DType::f8e5m2:
        case DType::i8: return 1;
    }
    return 0;
}

/// True for floats that ops compute in. An 8-bit float is a code that needs a scale (quantize, matmul_quantized).
constexpr bool is_float(DType t) { return t == DType::f32 || t == DType::bf16 || t == DType::f16 || t == DType::f64; }

/// Name of a dtype in the text form of programs: "f32", "bf16", ...
ORRERY_API std::string_view name_of(DType t);
ORRERY_API std::optional<DType> parse_dtype(std::string_view name);

}  // namespace orrery
