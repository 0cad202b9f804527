#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "orrery/dtype.h"

namespace orrery {

/// Whether RowSum can add arrays of this type: f32, bf16, f16.
bool can_be_added(DType dtype);

/// Adds arrays of one shape and type in f64, such as the rows that islands have of a param.
class RowSum {
public:
    explicit RowSum(int64_t count) : sums_(static_cast<size_t>(count)) {}
    void add(DType dtype, const std::byte* from);
    /// Writes the sum divided by `parts`, rounded once.
    void write(double parts, DType dtype, std::byte* to) const;

private:
    std::vector<double> sums_;
};

}  // namespace orrery
