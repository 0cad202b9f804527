// The loop of a loss in tiles of rows, for all devices: logits, the loss, and gradients of one tile after the other.
#pragma once

#include "kernels/kernels.h"

namespace orrery::kernels {

/// Elements of an operand from `at` on.
inline In from(In x, std::int64_t at) {
    return {x.data == nullptr ? nullptr : x.as<const char>() + at * size_of(x.type), x.type};
}
inline Out from(Out y, std::int64_t at) {
    return {y.data == nullptr ? nullptr : y.as<char>() + at * size_of(y.type), y.type};
}

/// Factor of the gradients of the logits in a tile. f16 has few exponents: a probability below 6e-8 would be 0. dlogits
/// are at most 1 in magnitude, so times 2^15 they still are f16 numbers. Powers of two round nothing.
inline double tile_scale(Type type) { return type == Type::f16 ? 32768 : 1; }

/// The GEMMs of a tile of n rows: logits, dhead and dx.
inline Matmul logits_product(const TiledLoss& s, std::int64_t n) {
    return {.m = n, .n = s.cols, .k = s.width, .trans_b = s.trans_b, .shared_b = true};
}
inline Matmul head_product(const TiledLoss& s, std::int64_t n) {
    return {.m = s.trans_b ? s.cols : s.width,
            .n = s.trans_b ? s.width : s.cols,
            .k = n,
            .trans_a = true,
            .shared_b = true};
}
inline Matmul rows_product(const TiledLoss& s, std::int64_t n) {
    return {.m = n, .n = s.width, .k = s.cols, .trans_b = !s.trans_b, .shared_b = true};
}

/// Calls the functions below for each tile. dhead is made before dx, which may be the memory of x.
///   product(matmul, a, b, bias, y)   y (+)= a b + bias
///   rows(first, n, logits)           loss or statistics of rows first .. first + n; dlogits in place of the logits
/// logits: memory for a tile of the type of x.
template <class Product, class Rows>
void each_tile(const TiledLoss& s, const TiledLossData& t, Out logits, Product product, Rows rows) {
    for (std::int64_t first = 0; first < s.rows; first += s.tile) {
        const std::int64_t n = s.rows - first < s.tile ? s.rows - first : s.tile;
        const In x = from(t.x, first * s.width);
        product(logits_product(s, n), x, t.head, t.bias, logits);
        rows(first, n, logits);
        if (!s.gradients) continue;
        Matmul head = head_product(s, n);
        head.accumulate = s.accumulate || first > 0;
        product(head, s.trans_b ? In(logits) : x, s.trans_b ? x : In(logits), In{}, t.dhead);
        product(rows_product(s, n), logits, t.head, In{}, from(t.dx, first * s.width));
    }
}

}  // namespace orrery::kernels
