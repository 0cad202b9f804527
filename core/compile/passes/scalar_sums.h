#pragma once
#include <functional>
#include <map>
#include <vector>

#include "compile/passes/versions.h"

namespace orrery {

/// Adds two terms by an op like `like`, in the place of op `at`.
using AddTerms = std::function<void(const Op& like, OpId at, ValueId a, ValueId b, ValueId sum)>;

/// Sums of scalars in the update (a gradient norm): what is partial over the same axes is added before it is reduced,
/// so that each set of axes costs one reduction. The sum of alike terms keeps its order.
class ScalarSums {
public:
    explicit ScalarSums(const Program& annotated);

    /// An addition inside of a sum: it is made with its root.
    bool inner(size_t op) const { return inner_[op]; }
    /// The terms of the sum that ends in this op; nullptr when it ends none.
    const std::vector<ValueId>* terms(OpId op) const;
    /// The additions below the root, in order.
    const std::vector<OpId>& additions(OpId root) const { return roots_.at(root).inner; }
    /// Whether the terms are partial over different axes, or belong to different stages.
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
    std::vector<bool> marked_;  ///< by value
    std::map<OpId, Sum> roots_;
};

}  // namespace orrery
