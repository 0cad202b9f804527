// Elements as NCCL adds and compares them: 16-bit sums are rounded at each step.
#pragma once

#include <nccl.h>

#include <cstddef>

namespace orrery::standin {

size_t size_of(ncclDataType_t type);

/// a[i] = a[i] op b[i].
void combine(ncclDataType_t type, ncclRedOp_t op, void* a, const void* b, size_t count);

}  // namespace orrery::standin
