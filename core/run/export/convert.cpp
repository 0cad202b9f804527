#include "run/export/convert.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "orrery/half.h"

namespace orrery {

namespace {

constexpr int64_t tile = 32;  // elements per side of a square tile; two tiles fit into the L1 cache

template <class From, class To>
To one(const From& x) {
    if constexpr (std::is_same_v<From, To>)
        return x;
    else
        return To(static_cast<float>(x));
}

template <class From, class To>
bool overflows(const From& x) {
    return std::isfinite(static_cast<float>(x)) && !std::isfinite(static_cast<float>(To(static_cast<float>(x))));
}

template <class From, class To>
void turn(const From* from, To* to, int64_t rows, int64_t columns) {
    for (int64_t r = 0; r < rows; r += tile)
        for (int64_t c = 0; c < columns; c += tile) {
            const int64_t last_row = std::min(rows, r + tile), last_column = std::min(columns, c + tile);
            for (int64_t column = c; column < last_column; ++column)
                for (int64_t row = r; row < last_row; ++row)
                    to[column * rows + row] = one<From, To>(from[row * columns + column]);
        }
}

template <class From, class To>
int64_t convert_as(const std::byte* from_bytes, std::byte* to_bytes, int64_t rows, int64_t columns, bool transpose) {
    const auto* from = reinterpret_cast<const From*>(from_bytes);
    auto* to = reinterpret_cast<To*>(to_bytes);
    const int64_t count = rows * columns;
    if (transpose)
        turn(from, to, rows, columns);
    else if (std::is_same_v<From, To>)
        std::memcpy(to_bytes, from_bytes, static_cast<size_t>(count) * sizeof(To));
    else
        for (int64_t i = 0; i < count; ++i) to[i] = one<From, To>(from[i]);
    if constexpr (!std::is_same_v<From, To> && !std::is_same_v<To, float>) {
        for (int64_t i = 0; i < count; ++i)
            if (overflows<From, To>(from[i])) return i;
    }
    return -1;
}

template <class From>
int64_t convert_from(const std::byte* from, std::byte* to, DType to_type, int64_t rows, int64_t columns,
                     bool transpose) {
    if (to_type == DType::f32) return convert_as<From, float>(from, to, rows, columns, transpose);
    if (to_type == DType::bf16) return convert_as<From, BFloat16>(from, to, rows, columns, transpose);
    return convert_as<From, Float16>(from, to, rows, columns, transpose);
}

template <class To>
bool rounds_to(const std::byte* from_bytes, int64_t count) {
    const auto* from = reinterpret_cast<const float*>(from_bytes);
    return std::any_of(from, from + count, [](float x) { return static_cast<float>(To(x)) != x && !std::isnan(x); });
}

}  // namespace

bool rounds(const std::byte* from, DType from_type, DType to_type, int64_t count) {
    if (from_type != DType::f32 || to_type == DType::f32) return false;
    return to_type == DType::bf16 ? rounds_to<BFloat16>(from, count) : rounds_to<Float16>(from, count);
}

bool is_exported(DType dtype) { return dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16; }

int64_t convert(const std::byte* from, DType from_type, std::byte* to, DType to_type, int64_t rows, int64_t columns,
                bool transpose) {
    assert(is_exported(from_type) && is_exported(to_type));
    if (from_type == DType::f32) return convert_from<float>(from, to, to_type, rows, columns, transpose);
    if (from_type == DType::bf16) return convert_from<BFloat16>(from, to, to_type, rows, columns, transpose);
    return convert_from<Float16>(from, to, to_type, rows, columns, transpose);
}

}  // namespace orrery
