#pragma once
#include <cstddef>
#include <cstdint>

#include "orrery/dtype.h"

namespace orrery {

/// Whether tensors of this type can be exported: f32, bf16, f16.
bool is_exported(DType dtype);

/// Writes a dense block of [rows, columns] in another type, rounded to the nearest, as [rows, columns] or transposed as
/// [columns, rows]; the same type keeps its bits. Types as is_exported has them; the blocks do not overlap. Returns the
/// index of a finite element that became infinite, -1: none did.
int64_t convert(const std::byte* from, DType from_type, std::byte* to, DType to_type, int64_t rows, int64_t columns,
                bool transpose);

}  // namespace orrery
