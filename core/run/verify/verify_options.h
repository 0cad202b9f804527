#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace orrery {

/// A mistake made on purpose on one rank, to see that it is found.
struct Injection {
    enum class What : uint8_t {
        scale,       ///< what the rank makes of a tensor, times `by`
        unreduced,   ///< after a reduction the rank holds what it put in, of the whole message that the tensor is in
        unexchanged  ///< the same after an all_to_all
    };
    What what = What::scale;
    int64_t rank = 0;
    std::string tensor;
    double by = 1.01;
    int64_t micro = 0;  ///< scale: in which micro-batch, where the tensor is made in each
    std::string text;   ///< as given
};

struct VerifyOptions {
    int64_t steps = 2;  ///< a param that starts at zero hides the gradients that pass it in the first step
    int draws = 4;      ///< runs of the oracle with other rounding each, every step
    int sure = 32;      ///< of a step in which something is too far off for those
    bool bitwise = false;
    std::vector<Injection> injections;
};

}  // namespace orrery
