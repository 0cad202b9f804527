#pragma once
#include <functional>
#include <map>
#include <set>
#include <vector>

#include "orrery/plan.h"

namespace orrery {

/// Follows a value back through collectives and through ops that pack their operands (`packs`). Returns the first value
/// that `found` accepts, or that another kind of op made.
ValueId before_messages(const Program& program, ValueId value, const std::function<bool(ValueId)>& found,
                        const std::function<bool(const Op&)>& packs);

/// Where the gradients of a plan can be compared: values that are whole on the ranks that hold them, and are a gradient
/// or the result of linear ops on a gradient's terms. An optimizer that scales a gradient before its terms are summed
/// over ranks never holds the gradient itself; what it scales, sums and slices is compared instead.
class Gradients {
public:
    struct Standing {
        ValueId value = none;
        bool multiple = false;  ///< whether the value is the gradient times one number
    };

    /// `known`: number of values before propagation; values from that id on were added by propagation.
    Gradients(const Plan& plan, size_t known);

    /// Returns all values to compare for the gradient, one at the end of each path on which its terms are read.
    const std::vector<Standing>& of(ValueId gradient) const;
    /// The gradient that the value is a multiple of; none: it is a multiple of no gradient.
    ValueId multiple_of(ValueId value) const { return multiple_of_[value]; }
    /// Whether the gradient reaches the end of a step or a result. Other gradients are not computed.
    bool matters(ValueId gradient) const { return live_[gradient] != 0; }

private:
    using Carried = std::map<ValueId, bool>;  ///< gradients with terms in a value; true: the value is their multiple

    void find_live();
    void carry();
    bool partial_over_ranks(ValueId value) const;
    bool added_move(const Op& op) const;
    ValueId term_of(ValueId value) const;

    const Plan& plan_;
    const size_t known_;
    std::vector<char> live_;
    /// The gradients with terms in each value that linear ops made from terms.
    std::map<ValueId, Carried> carried_;
    std::vector<ValueId> multiple_of_;
    std::map<ValueId, std::vector<Standing>> standing_;
};

}  // namespace orrery
