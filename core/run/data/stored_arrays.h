#pragma once
#include "orrery/data.h"

namespace orrery {

/// Lists the arrays in a file by its header: NumPy if the path ends in .npy, else safetensors. Throws Error that starts
/// with the problem and names neither the file nor a remedy; callers add both.
std::vector<StoredArray> stored_arrays(const DataFile& file);

}  // namespace orrery
