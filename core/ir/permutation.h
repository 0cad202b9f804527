#pragma once
#include <cstdint>
#include <vector>

namespace orrery {

/// The permutation that undoes one.
inline std::vector<int64_t> inverse(const std::vector<int64_t>& perm) {
    std::vector<int64_t> out(perm.size());
    for (size_t i = 0; i < perm.size(); ++i) out[perm[i]] = static_cast<int64_t>(i);
    return out;
}

}  // namespace orrery
