// Comparisons with their margins, printed as a table.
#pragma once
#include <map>
#include <string>
#include <vector>

namespace orrery::equivalence {

/// One comparison: the largest error found, in its own unit, and which part of the tolerance that is.
struct Line {
    std::string what;
    std::string unit;  ///< "relative", "absolute"
    double error = 0;
    double part = 0;  ///< of the tolerance; at most 1 passes
    std::string worst;
};

double norm(const std::vector<float>& x);
/// ||a - b||
double distance(const std::vector<float>& a, const std::vector<float>& b);

/// ||g - ref|| <= 1e-5 ||ref|| + 1e-6 ||all gradients|| for each: the error is ||g - ref|| / ||ref|| of the worst.
class Gradients {
public:
    explicit Gradients(double all) : all_(all) {}
    void add(const std::string& name, const std::vector<float>& gradient, const std::vector<float>& reference);
    Line line(const std::string& what) const;

private:
    double all_;
    Line worst_{"", "relative", -1, -1, ""};
};

/// Largest |a - b| of arrays, against an absolute bound.
class Elements {
public:
    explicit Elements(double bound, std::string unit = "absolute") : bound_(bound), unit_(std::move(unit)) {}
    void add(const std::string& name, const std::vector<float>& a, const std::vector<float>& b, double scale = 1);
    Line line(const std::string& what) const;

private:
    double bound_;
    std::string unit_;
    double error_ = -1;
    std::string worst_;
};

/// Prints a line; in the long form also writes it to the table.
void say(const std::string& line);

/// Prints the lines under a title and returns the largest part of a tolerance; NaN counts as infinite.
double print(const std::string& title, const std::vector<Line>& lines);

}  // namespace orrery::equivalence
