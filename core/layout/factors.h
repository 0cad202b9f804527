#pragma once
#include <string>
#include <vector>

#include "orrery/infer.h"
#include "orrery/layout.h"

namespace orrery {

/// Which axes split each factor of an op (outermost first), and over which axes it hands Partial on.
struct Assignment {
    std::vector<std::vector<AxisId>> splits;
    std::vector<Layout::Partial> linear;

    bool operator==(const Assignment&) const = default;
};

/// Why an op cannot stay split as its operand is.
enum class Blocked : uint8_t {
    no,
    whole,   ///< the kernel needs the whole factor
    uneven,  ///< the axis does not divide the factor, or straddles two of them
};

/// What an operand's layout asks of the op on one axis.
struct Preference {
    AxisId axis = none_axis;
    int factor = -1;  ///< the factor it splits, or the one that stands in the way
    int dim = -1;     ///< of the operand
    Blocked blocked = Blocked::no;

    static constexpr AxisId none_axis = -1;
};

/// Reads a layout as splits of factors: each dim's axes go to its factors, major to minor. Axes behind a blocked one
/// in the same dim are blocked by the same factor. Partial axes and axes of size 1 give no preference.
std::vector<Preference> preferences_of(const Layout& layout, const FactorRule::Dims& dims, const FactorRule& rule,
                                       const Mesh& mesh);

/// Whether every operand's block is contiguous in its dims: factors divide evenly, none is whole, a minor factor is
/// split only where the major ones of its dim are split completely, and no output loses a parallel factor.
bool legal(const FactorRule& rule, const Assignment& assignment, const Mesh& mesh);

/// The layout that the op needs its i-th input in.
Layout input_layout(const FactorRule& rule, size_t input, const Assignment& assignment);
/// The layout in which the op leaves its i-th output; contracted and index factors that it lacks become Partial.
Layout output_layout(const FactorRule& rule, size_t output, const Assignment& assignment);

}  // namespace orrery
