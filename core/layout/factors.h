#pragma once
#include <string>
#include <vector>

#include "orrery/infer.h"
#include "orrery/layout.h"

namespace orrery {

/// The layout chosen for an op: by factor, the axes that split it, outermost first; and partial axes of linear inputs.
struct Assignment {
    std::vector<std::vector<AxisId>> splits;
    std::vector<Layout::Partial> linear;

    bool operator==(const Assignment&) const = default;
};

/// Why an op cannot be split on an axis as its operand is.
enum class Blocked : uint8_t {
    no,
    whole,   ///< the op's kernel needs all of the factor, or rolls it by a part of a block
    uneven,  ///< the size of the axis does not divide the unsplit rest of the factor
};

/// How a layout of an operand suggests to split the op on one axis.
struct Preference {
    AxisId axis = none_axis;
    int factor = -1;  ///< factor that the axis splits, or would split if it were not `blocked`
    int dim = -1;     ///< dim of the operand that the axis splits
    Blocked blocked = Blocked::no;

    static constexpr AxisId none_axis = -1;
};

/// Returns a layout of an operand as splits of factors: the axes of a dim split its factors from major to minor. Once
/// an axis is blocked, so are the further axes of that dim. Axes that are partial or of size 1 are left out.
std::vector<Preference> preferences_of(const Layout& layout, const FactorRule::Dims& dims, const FactorRule& rule,
                                       const Mesh& mesh);

/// True when the op can run with an assignment: factors divide evenly, `whole` ones are not split, every output has all
/// split parallel factors, and a minor factor is split only when the major ones of its dim are split completely.
bool legal(const FactorRule& rule, const Assignment& assignment, const Mesh& mesh);

Layout input_layout(const FactorRule& rule, size_t input, const Assignment& assignment);
/// Returns the layout of output number `output`: partial over axes that split contracted or index factors not in it.
Layout output_layout(const FactorRule& rule, size_t output, const Assignment& assignment);

}  // namespace orrery
