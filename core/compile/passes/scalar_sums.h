#pragma once
#include <functional>
#include <map>
#include <vector>

#include "compile/passes/versions.h"

namespace orrery {

/// Adds an op at the place of op `at` that sums a and b to the value `sum`. Other properties are those of op `like`.
using AddTerms = std::function<void(const Op& like, OpId at, ValueId a, ValueId b, ValueId sum)>;

/// The sums of scalars in the update, such as a gradient norm. Terms that are partial over the same axes are added
/// before they are reduced, so each set of axes takes one reduction. They are added in the program's order:
///
///     %7 = add %4 %5   (tp:P + tp:P)        %7 = add %4 %5               tp:P
///     %8 = add %7 %6   (tp:P + R)      ->   %9 = all_reduce %7 {axis=tp} R
///                                           %8 = add %9 %6               R
class ScalarSums {
public:
    explicit ScalarSums(const Program& annotated);

    /// True for an addition that is not the last of its sum; it is made together with the last one.
    bool inner(size_t op) const { return inner_[op]; }
    /// The terms of the sum that ends in op `op`; nullptr if none does.
    const std::vector<ValueId>* terms(OpId op) const;
    /// The additions of the sum that ends in op `root`, except `root`, in order.
    const std::vector<OpId>& additions(OpId root) const { return roots_.at(root).inner; }
    /// True if the terms of a sum are partial over different axes.
    bool mixed(OpId root, const Versions& versions) const;
    void combine(OpId root, Versions& versions, const Mesh& mesh, const AddTerms& add) const;

private:
    struct Sum {
        std::vector<ValueId> terms;
        std::vector<OpId> inner;
    };
    void collect(ValueId value, Sum& sum, const std::vector<int>& readers);
    int stage_of(ValueId value) const;

    const Program& annotated_;
    std::vector<bool> inner_;
    std::vector<bool> marked_;  ///< by value: whether a strategy has a mark for it
    std::map<OpId, Sum> roots_;
};

}  // namespace orrery
