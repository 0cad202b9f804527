#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/layout.h"
#include "orrery/program.h"

namespace orrery {

/// Type and dim names of one operand.
struct Typed {
    TensorType type;
    std::vector<std::string> dims;
    bool operator==(const Typed&) const = default;
};

/// What an op's shape inference sees: the operands and the attributes, which it may complete (a scale left out, a
/// negative dim). Its checks throw Error with the op, the operands' names, shapes with dim names, and origins.
class ORRERY_API Infer {
public:
    Infer(const Program& program, std::string_view kind, std::span<const ValueId> inputs, Attributes given,
          const Origin& origin);

    std::string_view kind() const { return kind_; }
    size_t count() const { return inputs_.size(); }
    const Value& value(size_t i) const { return program_.value(inputs_[i]); }
    const TensorType& type(size_t i) const { return value(i).type; }
    const Shape& shape(size_t i) const { return value(i).type.shape; }
    int rank(size_t i) const { return static_cast<int>(shape(i).size()); }
    DType dtype(size_t i) const { return value(i).type.dtype; }
    const std::vector<std::string>& dims(size_t i) const { return value(i).dims; }
    Typed typed(size_t i) const { return {type(i), dims(i)}; }
    /// How many ops the program has so far.
    int64_t op_count() const { return static_cast<int64_t>(program_.ops.size()); }

    Attributes attributes;

    /// "x f32[batch=8,embed=512] (mlp.lua:3)"
    std::string show(size_t i) const;
    /// Throws "matmul: WHAT; REMEDY" at the op's origin.
    [[noreturn]] void fail(const std::string& what, const std::string& remedy = "") const;
    /// The common name of dim `di` of input i and dim `dj` of input j: "" unifies with anything. Throws on a conflict.
    std::string unify(size_t i, int di, size_t j, int dj) const;
    /// Throws unless both dims have one size, then unifies. `what` says what the dims are: "inner dims".
    std::string same_dim(size_t i, int di, size_t j, int dj, std::string_view what) const;
    /// Throws unless the types are equal and names unify; returns the unified names.
    Typed same_type(size_t i, size_t j) const;
    void expect_float(size_t i) const;
    void expect_dtype(size_t i, DType t) const;
    void expect_same_dtype(size_t i, size_t j) const;
    void expect_rank(size_t i, int least, int most = 1 << 20) const;
    /// A dim attribute in 0..rank-1; negative counts from the end and is rewritten.
    int dim_attribute(std::string_view key, int rank);
    /// The `dtype` attribute, or the fallback.
    DType dtype_attribute(DType fallback) const;

private:
    const Program& program_;
    std::string_view kind_;
    std::span<const ValueId> inputs_;
    const Origin& origin_;
};

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
