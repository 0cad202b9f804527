#pragma once
#include <functional>
#include <map>
#include <vector>

#include "compile/passes/versions.h"

namespace orrery {

/// Inserts value `sum` = a + b at the place of op `at`, with the other properties (phase, scope) of op `like`.
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

    /// Whether an op is an addition inside a larger sum, which `combine` makes at the last addition of the sum.
    bool inner(size_t op) const { return inner_[op]; }
    /// The terms of the sum that ends in addition `op`; nullptr if there is none.
    const std::vector<ValueId>* terms(OpId op) const;
    /// The other additions of the sum that ends in addition `root`, in order.
    const std::vector<OpId>& additions(OpId root) const { return roots_.at(root).inner; }
    /// Whether the terms of a sum are partial over different axes.
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
    std::vector<bool> marked_;  ///< by value: whether a strategy marked it
    std::map<OpId, Sum> roots_;
};

}  // namespace orrery
