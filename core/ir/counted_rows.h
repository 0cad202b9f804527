#pragma once
#include <optional>

#include "orrery/program.h"

namespace orrery {

/// How many of an expert's S slots hold rows, for an op with x [G..., E, S, K] and counts [G..., E].
struct CountedRows {
    double choices = 0;  ///< number of choices that tokens of a group make: its tokens times the experts of a token
    int64_t experts = 1, slots = 1;  ///< E and S

    double mean() const { return choices / static_cast<double>(experts); }  ///< choices of an expert in a group
    /// Rows of an expert in a group with `times` the mean load: at most all slots.
    double rows(double times) const;
};

/// The slots of an op's first operand; nullopt if the op has no operand `counts`, if its rows are sorted by expert
/// instead, or if another kind of op made the counts.
std::optional<CountedRows> counted_rows(const Program& program, const Op& op);

}  // namespace orrery
