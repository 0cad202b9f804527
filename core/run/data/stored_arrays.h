#pragma once
#include "orrery/data.h"

namespace orrery {

/// Reads the header of an array file: NumPy if its path ends in .npy, else safetensors. Throws Error that starts with
/// the problem and names neither the file nor a remedy; callers add both.
std::vector<StoredArray> stored_arrays(const DataFile& file);

}  // namespace orrery
