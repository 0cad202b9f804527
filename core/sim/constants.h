#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace orrery {

/// A number of the simulator that is fitted to measurements within its physical range, or that others measured and has
/// no range. At most 30 are fitted. Each belongs to an accelerator, a kind of fabric or a class of software, never to a
/// model, a publication or a single measurement.
struct Constant {
    std::string name;  ///< "matrix.H100-80G-SXM"
    std::string meaning;
    double value = 0;
    double least = 0, most = 0;  ///< the physical range, which a fit may not leave
    double unfitted = 0;         ///< value to use without measurements of runs: from a data sheet or a paper
};

/// The simulator's table of fitted constants. `bench/published --fit` prints its values.
class Constants {
public:
    Constants();  ///< starts with the fitted values
    const std::vector<Constant>& all() const { return all_; }
    /// Returns the value of a constant. Throws Error if there is no constant of this name.
    double of(std::string_view name) const;
    bool has(std::string_view name) const;
    void set(size_t index, double value) { all_[index].value = value; }
    void forget_fit();

private:
    std::vector<Constant> all_;
};

}  // namespace orrery
