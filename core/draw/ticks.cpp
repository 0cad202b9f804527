#include "draw/ticks.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/text.h"

namespace orrery::drawing {

std::string Ticks::text(double amount) const {
    int decimals = 0;
    for (double apart = step / unit; apart < 1 - 1e-9 && decimals < 12; apart *= 10) ++decimals;
    const double value = amount / unit;
    return decimals == 0 ? count_text(std::llround(value)) : fmt::format("{:.{}f}", value, decimals);
}

double tick_step(double span, int most) {
    if (!(span > 0)) return 1;
    double power = 1;
    while (span / power <= most && power > 1e-15) power /= 10;
    while (true) {
        for (double times : {1.0, 2.0, 5.0})
            if (span / (power * times) <= most) return power * times;
        power *= 10;
    }
}

Ticks time_ticks(double span, double largest, int most) {
    Ticks ticks{1, 1e-9, "ns"};
    for (const auto& [unit, name] : {std::pair{1.0, "s"}, {1e-3, "ms"}, {1e-6, "us"}})
        if (largest >= unit) {
            ticks = {1, unit, name};
            break;
        }
    ticks.step = ticks.unit * tick_step(span / ticks.unit, most);
    return ticks;
}

Ticks byte_ticks(double largest, int most) {
    constexpr std::array units{"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    size_t number = 0;
    double unit = 1;
    for (; largest >= 1024 * unit && number + 1 < units.size(); ++number) unit *= 1024;
    const double step = tick_step(largest / unit, most);
    return {unit * (number == 0 ? std::max(1.0, step) : step), unit, units[number]};
}

Ticks plain_ticks(double span, int most, double finest) { return {std::max(finest, tick_step(span, most)), 1, ""}; }

}  // namespace orrery::drawing
