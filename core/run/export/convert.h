#pragma once
#include <cstddef>
#include <cstdint>

#include "orrery/dtype.h"

namespace orrery {

/// Whether tensors of this type can be exported: f32, bf16, f16.
bool is_exported(DType dtype);

/// Converts a dense block of [rows, columns] to another type, rounding to nearest, and optionally transposes it to
/// [columns, rows]. The same type keeps its bits. Both types must satisfy is_exported; the blocks must not overlap.
/// Returns the index of a finite element that became infinite; -1: none.
int64_t convert(const std::byte* from, DType from_type, std::byte* to, DType to_type, int64_t rows, int64_t columns,
                bool transpose);

/// Whether one of `count` elements of f32 is not a value of the 16-bit type; false for other types.
bool rounds(const std::byte* from, DType from_type, DType to_type, int64_t count);

}  // namespace orrery
