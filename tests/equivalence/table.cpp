#include "table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <stdexcept>

namespace orrery::equivalence {

double norm(const std::vector<float>& x) {
    double sum = 0;
    for (float v : x) sum += static_cast<double>(v) * static_cast<double>(v);
    return std::sqrt(sum);
}

double distance(const std::vector<float>& a, const std::vector<float>& b) {
    if (a.size() != b.size())
        throw std::runtime_error(fmt::format("{} elements are compared with {}", a.size(), b.size()));
    double sum = 0;
    for (size_t i = 0; i < a.size(); ++i) {
        const double d = static_cast<double>(a[i]) - static_cast<double>(b[i]);
        sum += d * d;
    }
    return std::sqrt(sum);
}

void Gradients::add(const std::string& name, const std::vector<float>& gradient, const std::vector<float>& reference) {
    const double far = distance(gradient, reference), length = norm(reference);
    const double part = far / (1e-5 * length + 1e-6 * all_);
    if (!(part <= worst_.part)) worst_ = {"", "relative", far / std::max(length, 1e-6 * all_), part, name};
}

Line Gradients::line(const std::string& what) const {
    Line line = worst_;
    line.what = what;
    return line;
}

void Elements::add(const std::string& name, const std::vector<float>& a, const std::vector<float>& b, double scale) {
    if (a.size() != b.size())
        throw std::runtime_error(fmt::format("{}: {} elements are compared with {}", name, a.size(), b.size()));
    for (size_t i = 0; i < a.size(); ++i) {
        const double error = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])) / scale;
        if (!(error <= error_)) error_ = error, worst_ = name;
    }
}

Line Elements::line(const std::string& what) const { return {what, unit_, error_, error_ / bound_, worst_}; }

void say(const std::string& line) {
    static const char* const file = std::getenv("ORRERY_LONG");
    static std::ofstream table = file ? std::ofstream(file) : std::ofstream();
    fmt::print("{}\n", line);
    std::fflush(stdout);
    if (file) table << line << std::endl;
}

double print(const std::string& title, const std::vector<Line>& lines) {
    fmt::print("{}\n", title);
    double most = 0;
    for (const Line& line : lines) {
        fmt::print("  {:<30} {:>9.2g} {:<8}  {:>7.2g} of the tolerance  {}\n", line.what, line.error, line.unit,
                   line.part, line.worst);
        // Nothing compared (below 0) fails as NaN does.
        most = line.part >= 0 ? std::max(most, line.part) : std::numeric_limits<double>::infinity();
    }
    std::fflush(stdout);
    return most;
}

}  // namespace orrery::equivalence
