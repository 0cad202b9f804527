#pragma once
#include <string>

namespace orrery::drawing {

/// Ticks of an axis at round amounts.
struct Ticks {
    double step = 1;   ///< distance of ticks: 1, 2 or 5 times a power of ten of the unit
    double unit = 1;   ///< the amount that a label writes as 1
    std::string name;  ///< of the unit: "ms", "GiB"; "": none

    /// Formats an amount without the unit's name, with the decimals that the step needs: "1,200", "0.5".
    std::string text(double amount) const;
};

/// Returns the distance of ticks, 1, 2 or 5 times a power of ten, for up to `most` on an axis of length `span`.
double tick_step(double span, int most);

/// Ticks of an axis of time. `span`: length of the axis; `largest`: its last time, which decides on the unit; both in
/// seconds.
Ticks time_ticks(double span, double largest, int most);
Ticks byte_ticks(double largest, int most);               ///< ticks of an axis of bytes from 0 to `largest`
Ticks plain_ticks(double span, int most, double finest);  ///< ticks without a unit, at least `finest` apart

}  // namespace orrery::drawing
