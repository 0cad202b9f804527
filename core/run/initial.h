#pragma once
#include "orrery/device.h"
#include "orrery/program.h"

namespace orrery {

/// The kernel that makes the first contents of a param's or state's local part: `full`, or `random` of one u32[]
/// operand (see `seed_word`), drawn by the value's name and global element index, so that every mesh starts alike.
KernelSpec initial_kernel(const Value& value, const TensorType& local, const Shape& offset);

uint32_t seed_word(uint64_t seed);

}  // namespace orrery
