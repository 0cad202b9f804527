#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace orrery {

/// A number of the simulator that measurements settle, within what is physically possible. At most 40 in all: of an
/// accelerator, a kind of fabric or a software stack; never of a model, a publication or one measurement.
struct Constant {
    std::string name;  ///< "matrix.H100-80G-SXM"
    std::string meaning;
    double value = 0;
    double least = 0, most = 0;  ///< the physical range; a fit may not leave it
    double unfitted = 0;         ///< what one takes without any measurement of a run: a datasheet, a paper
};

/// The table. `bench/published --fit` prints its values.
class Constants {
public:
    Constants();  ///< as fitted
    const std::vector<Constant>& all() const { return all_; }
    /// Throws Error where there is none of the name.
    double of(std::string_view name) const;
    bool has(std::string_view name) const;
    void set(size_t index, double value) { all_[index].value = value; }
    void forget_fit();

private:
    std::vector<Constant> all_;
};

}  // namespace orrery
