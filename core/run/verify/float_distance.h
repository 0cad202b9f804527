#pragma once
#include <cstdint>
#include <string>

#include "orrery/tensor.h"

namespace orrery {

/// Element `i` of a dense array.
double number_at(DType dtype, const void* data, int64_t i);

/// How far one array is from another of the same type.
struct Difference {
    double distance = 0;  ///< ||have - want||; infinite when one of them is NaN where the other is not
    double largest = 0;   ///< largest |want|
    double norm = 0;      ///< ||want||
    int64_t count = 0;
    int64_t unequal = 0;   ///< elements with other bits
    int64_t left_out = 0;  ///< elements that do not count
    int64_t worst = none;  ///< the element farthest off
    double have = 0, want = 0;

    static constexpr int64_t none = -1;
};

/// `left_out`: per element whether it does not count; nullptr when all do.
Difference difference(DType dtype, const void* have, const void* want, int64_t count, const char* left_out = nullptr);

/// The gap between 1 and the next number; 0 for integers.
double epsilon_of(DType dtype);

/// Moves every float as another order of summation might: up or down by `relative` of itself, drawn from the seed. A
/// 16-bit float moves to its neighbour as often as such a change rounds differently, and about four of any array do:
/// one is enough to move what follows. Integers stay.
void jitter(DType dtype, void* data, int64_t count, double relative, uint64_t seed);

/// "[2,17]" of element 1,234 of an array.
std::string index_text(const Shape& shape, int64_t element);

}  // namespace orrery
