#pragma once
#include <functional>
#include <map>
#include <set>
#include <vector>

#include "orrery/plan.h"

namespace orrery {

/// What collectives, and the packing around joined ones, made the value of: the first value on the way back that
/// `found` accepts, or that neither a collective nor an op that `packs` made.
ValueId before_messages(const Program& program, ValueId value, const std::function<bool(ValueId)>& found,
                        const std::function<bool(const Op&)>& packs);

/// Where the gradients of a plan can be compared: which values, whole on the ranks that hold them, are a gradient or
/// what linear ops made of the terms of one. An optimizer that scales a gradient before the terms are summed over ranks
/// never has the gradient itself; what it scales, sums and slices is summed instead, and stands for it.
class Gradients {
public:
    struct Standing {
        ValueId value = none;
        bool multiple = false;  ///< the gradient times one number, element by element
    };

    /// `known`: how many values the program had before propagation. What lies behind is added.
    Gradients(const Plan& plan, size_t known);

    /// All values that stand for the gradient, at the end of each way on which its terms are read.
    const std::vector<Standing>& of(ValueId gradient) const;
    /// The gradient that the value is a multiple of; none.
    ValueId multiple_of(ValueId value) const { return multiple_of_[value]; }
    /// Whether it reaches the end of a step or a result. Others are not made.
    bool matters(ValueId gradient) const { return live_[gradient] != 0; }

private:
    using Carried = std::map<ValueId, bool>;  ///< by gradient: whether it is a multiple

    void find_live();
    void carry();
    bool partial_over_ranks(ValueId value) const;
    bool added_move(const Op& op) const;
    ValueId term_of(ValueId value) const;

    const Plan& plan_;
    const size_t known_;
    std::vector<char> live_;
    /// By value: gradients and partial values that linear ops made of their terms.
    std::map<ValueId, Carried> carried_;
    std::vector<ValueId> multiple_of_;
    std::map<ValueId, std::vector<Standing>> standing_;
};

}  // namespace orrery
