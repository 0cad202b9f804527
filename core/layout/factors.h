#pragma once
#include <string>
#include <vector>

#include "orrery/infer.h"
#include "orrery/layout.h"

namespace orrery {

/// The axes that split each factor of an op, outermost first, and those over which its linear inputs are partial.
struct Assignment {
    std::vector<std::vector<AxisId>> splits;
    std::vector<Layout::Partial> linear;

    bool operator==(const Assignment&) const = default;
};

/// Why an op cannot stay split as its operand is.
enum class Blocked : uint8_t {
    no,
    whole,   ///< the kernel needs the whole factor
    uneven,  ///< the size of the axis does not divide what remains of the factor
};

/// The split of a factor that an operand's layout suggests on one axis.
struct Preference {
    AxisId axis = none_axis;
    int factor = -1;  ///< the factor that the axis splits, or that blocks it
    int dim = -1;     ///< the dim of the operand
    Blocked blocked = Blocked::no;

    static constexpr AxisId none_axis = -1;
};

/// Reads a layout as splits of factors: the axes of a dim split its factors from major to minor. After a blocked axis,
/// the further axes of that dim are blocked too. Axes that are partial or of size 1 are left out.
std::vector<Preference> preferences_of(const Layout& layout, const FactorRule::Dims& dims, const FactorRule& rule,
                                       const Mesh& mesh);

/// True when the op can run so: factors divide evenly, `whole` ones are not split, every output has all split parallel
/// factors, and a minor factor is split only when the major ones of its dim are split completely.
bool legal(const FactorRule& rule, const Assignment& assignment, const Mesh& mesh);

/// The layout in which the op reads input `input`.
Layout input_layout(const FactorRule& rule, size_t input, const Assignment& assignment);
/// The layout of output `output`; partial over axes that split contracted or index factors which the output lacks.
Layout output_layout(const FactorRule& rule, size_t output, const Assignment& assignment);

}  // namespace orrery
