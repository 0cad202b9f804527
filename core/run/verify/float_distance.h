#pragma once
#include <cstdint>
#include <string>

#include "orrery/tensor.h"

namespace orrery {

/// Element `i` of a dense array, as f64.
double number_at(DType dtype, const void* data, int64_t i);

/// Stores `value` as element `i`, rounded to the dtype, which is a floating-point one.
void set_number(DType dtype, void* data, int64_t i, float value);

/// The distance between two arrays of the same dtype.
struct Difference {
    double distance = 0;  ///< Euclidean norm of have - want; infinite if an element is NaN in only one array
    double largest = 0;   ///< max absolute value in want
    double norm = 0;      ///< Euclidean norm of want
    int64_t count = 0;
    int64_t unequal = 0;  ///< number of elements whose bits differ
    int64_t left_out = 0;
    int64_t worst = none;  ///< index of the element with the largest distance
    double have = 0, want = 0;

    static constexpr int64_t none = -1;
};

/// Compares `have` with the reference `want`. `left_out`: nonzero for elements not to compare; nullptr: compare all.
Difference difference(DType dtype, const void* have, const void* want, int64_t count, const char* left_out = nullptr);

/// The gap between 1 and the dtype's next larger number; 0 for integers.
double epsilon_of(DType dtype);

/// Moves every float as another order of summation might: up or down by `relative` of itself, at random. A 16-bit float
/// moves to its neighbour as often as such a change rounds differently. About four 16-bit floats per array
/// move, since one is enough to change later values. Integers are unchanged.
void jitter(DType dtype, void* data, int64_t count, double relative, uint64_t seed);

/// Formats the index of an element: "[2,17]".
std::string index_text(const Shape& shape, int64_t element);

}  // namespace orrery
