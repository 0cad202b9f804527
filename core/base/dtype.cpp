#include "orrery/dtype.h"

#include <array>
#include <utility>

namespace orrery {

namespace {
constexpr std::array<std::pair<DType, std::string_view>, 12> names{{{DType::f32, "f32"},
                                                                    {DType::bf16, "bf16"},
                                                                    {DType::f16, "f16"},
                                                                    {DType::f64, "f64"},
                                                                    {DType::i32, "i32"},
                                                                    {DType::i64, "i64"},
                                                                    {DType::u32, "u32"},
                                                                    {DType::u16, "u16"},
                                                                    {DType::u8, "u8"},
                                                                    {DType::f8e4m3, "f8e4m3"},
                                                                    {DType::f8e5m2, "f8e5m2"},
                                                                    {DType::i8, "i8"}}};
}  // namespace

std::string_view name_of(DType t) {
    for (const auto& [type, name] : names) {
        if (type == t) return name;
    }
    return "?";
}

std::optional<DType> parse_dtype(std::string_view text) {
    for (const auto& [type, name] : names) {
        if (name == text) return type;
    }
    return std::nullopt;
}

}  // namespace orrery
