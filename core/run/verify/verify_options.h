#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace orrery {

/// An error injected on one rank, to test that it is found.
struct Injection {
    enum class What : uint8_t {
        scale,       ///< multiplies a tensor of the rank by `by`
        unreduced,   ///< the rank keeps its own input of a reduction, for the whole message that contains the tensor
        unexchanged  ///< the rank keeps its own input of an all_to_all, for the whole message that contains the tensor
    };
    What what = What::scale;
    int64_t rank = 0;
    std::string tensor;
    double by = 1.01;
    int64_t micro = 0;  ///< for `scale`: the micro-batch in which the tensor is scaled, if each one makes it
    std::string text;   ///< text of the injection as the user gave it
};

struct VerifyOptions {
    int64_t steps = 2;  ///< two, since a param that starts at zero hides gradients in the first step
    int draws = 4;      ///< runs of the oracle with random rounding, in each step
    int sure = 32;      ///< draws in a step in which a value exceeds its tolerance with `draws`
    bool bitwise = false;
    std::vector<Injection> injections;
};

}  // namespace orrery
