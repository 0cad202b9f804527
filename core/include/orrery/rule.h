#pragma once
#include <cstdint>
#include <vector>

#include "orrery/layout.h"

namespace orrery {

/// One index of an op, as in "mk,kn->mn". A dim of an operand is the product of its factors.
struct Factor {
    enum class Kind : uint8_t {
        parallel,    ///< may be split; operands that lack it are read whole by every member
        contracted,  ///< may be split; outputs that lack it become P(reduce)
        whole,       ///< may not be split: the kernel needs all of it
        index,       ///< may be split: rows outside the shard count as zero; outputs that lack it become P(reduce)
    };
    Kind kind = Kind::parallel;
    int64_t size = 1;
    ReduceOp reduce = ReduceOp::sum;
    bool operator==(const Factor&) const = default;
};

/// Every legal layout of one op. In operand order; per dim the ids of its factors, major to minor. An empty list is a
/// dim of size 1 (broadcast): it cannot be split.
struct FactorRule {
    using Dims = std::vector<std::vector<int>>;
    std::vector<Factor> factors;
    std::vector<Dims> inputs;
    std::vector<Dims> outputs;
    /// Inputs that may be P(sum) over an axis, all of these together or none, the other inputs being replicated over
    /// it; every output is then P(sum). Empty: the op is not linear.
    std::vector<int> linear_in;
    /// Inputs that are added once, after the contraction (matmul's bias). Over an axis that splits a contracted factor
    /// such an input must itself be P(sum): its value on one member, zero on the others.
    std::vector<int> added_once;
};

/// Makes rules dim by dim; a dim of size 1 gets no factor.
class ORRERY_API RuleMaker {
public:
    FactorRule rule;

    /// A new factor as a list for one dim; empty when size is 1.
    std::vector<int> dim(Factor::Kind kind, int64_t size, ReduceOp reduce = ReduceOp::sum);
    std::vector<int> parallel(int64_t size) { return dim(Factor::Kind::parallel, size); }
    std::vector<int> whole(int64_t size) { return dim(Factor::Kind::whole, size); }
    std::vector<int> contracted(int64_t size, ReduceOp reduce = ReduceOp::sum) {
        return dim(Factor::Kind::contracted, size, reduce);
    }
};

}  // namespace orrery
