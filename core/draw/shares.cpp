#include "draw/shares.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace orrery {

double total(const Intervals& times) {
    double sum = 0;
    for (const auto& [begin, end] : times) sum += end - begin;
    return sum;
}

namespace drawing {

std::vector<double> shares(const Intervals& times, double from, double to, size_t bins) {
    std::vector<double> share(bins, 0);
    const double width = (to - from) / static_cast<double>(bins);
    if (!(width > 0)) return share;
    for (const auto& [begin, end] : times) {
        const double first = std::max(0.0, (begin - from) / width);
        const double last = std::min(static_cast<double>(bins), (end - from) / width);
        for (auto bin = static_cast<size_t>(first); bin < bins && static_cast<double>(bin) < last; ++bin) {
            const auto edge = static_cast<double>(bin);
            share[bin] += std::min(last, edge + 1) - std::max(first, edge);
        }
    }
    for (double& part : share) part = std::min(part, 1.0);
    return share;
}

std::string steps_path(const std::vector<double>& share, double x1, double x2, double floor, double height) {
    const double width = (x2 - x1) / static_cast<double>(std::max<size_t>(1, share.size()));
    std::string path = "M" + number(x1) + "," + number(floor);
    double level = 0;
    for (size_t bin = 0; bin < share.size(); ++bin) {
        const double next = share[bin] <= 0 ? 0 : std::max(1.0, std::round(2 * height * share[bin]) / 2);
        if (next == level) continue;
        path += fmt::format("H{}V{}", number(x1 + width * static_cast<double>(bin)), number(floor - next));
        level = next;
    }
    if (level > 0) path += fmt::format("H{}V{}", number(x2), number(floor));
    return path + "Z";
}

std::string boxes_path(const Intervals& times, double left, double scale, double y, double height, double gap) {
    std::string path;
    for (const auto& [begin, end] : times) {
        const double width = std::max(0.5, scale * (end - begin) - gap);
        path += fmt::format("M{},{}h{}v{}h-{}z", number(left + scale * begin + gap / 2), number(y), number(width),
                            number(height), number(width));
    }
    return path;
}

std::vector<size_t> evenly(size_t count, size_t max) {
    std::vector<size_t> chosen;
    for (size_t i = 0; i < std::min(count, max); ++i)
        chosen.push_back(count <= max ? i : (i * (count - 1) + (max - 1) / 2) / (max - 1));
    return chosen;
}

}  // namespace drawing
}  // namespace orrery
