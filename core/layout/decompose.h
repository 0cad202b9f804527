#pragma once
#include <functional>
#include <map>
#include <vector>

#include "layout/versions.h"

namespace orrery {

/// Adds an op of a composite, like an op of the program, in the place of op `at`, laid out by its rule. `made`: what it
/// makes; empty: new values.
using AddPart =
    std::function<std::vector<ValueId>(const Op& like, OpId at, std::string kind, std::vector<ValueId> inputs,
                                       Attributes attributes, const std::vector<ValueId>& made)>;

/// Cross entropy over a split vocabulary: three statistics a row cross the wire instead of the logits.
void compose_cross_entropy(const Program& annotated, OpId id, const AddPart& add);

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
    void combine(OpId root, Versions& versions, const Mesh& mesh, const AddPart& add) const;

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
