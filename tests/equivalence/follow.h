// Whether one run follows another: losses, the first step's gradients, params at the end.
#pragma once
#include <functional>

#include "table.h"
#include "trial.h"

namespace orrery::equivalence {

struct Bounds {
    double loss = 1e-5;    ///< relative, each step; the gradient norms too
    double gradients = 1;  ///< times decisions.md's tolerance
    double params = 1e-4;  ///< absolute, after the last step
    /// Params left out at the end.
    std::function<bool(const std::string& param)> left_out = [](const std::string&) { return false; };
};

/// Runs with every_step of programs that show their gradients.
std::vector<Line> follow(const test::Ran& ran, const test::Ran& reference, const Bounds& bounds = {});

}  // namespace orrery::equivalence
