#pragma once
#include "orrery/data.h"

namespace orrery {

/// What the header of a file says: NumPy where its path ends in .npy, else safetensors. Throws Error that begins with
/// what is wrong and names neither the file nor the remedy.
std::vector<StoredArray> stored_arrays(const DataFile& file);

}  // namespace orrery
