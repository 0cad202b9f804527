#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/layout.h"
#include "orrery/program.h"

namespace orrery {

/// The type and dim names of one operand.
struct Typed {
    TensorType type;
    std::vector<std::string> dims;
    bool operator==(const Typed&) const = default;
};

/// What shape inference works with: the operands and the attributes, which it may complete (a missing scale, a negative
/// dim). Its checks throw Error with the op, its operands, their shapes with dim names, and origins.
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
    /// Number of ops in the program so far.
    int64_t op_count() const { return static_cast<int64_t>(program_.ops.size()); }

    Attributes attributes;

    /// "x f32[batch=8,embed=512] (mlp.lua:3)"
    std::string show(size_t i) const;
    /// Throws Error "matmul: WHAT; REMEDY" at the origin of the op.
    [[noreturn]] void fail(const std::string& what, const std::string& remedy = "") const;
    /// The common name of dim `di` of input i and dim `dj` of input j; "" matches any. Throws when they differ.
    std::string unify(size_t i, int di, size_t j, int dj) const;
    /// Throws unless both dims have the same size; unifies their names. `what` describes the dims: "inner dims".
    std::string same_dim(size_t i, int di, size_t j, int dj, std::string_view what) const;
    /// Throws Error unless the types are equal and the names unify; returns the unified names.
    Typed same_type(size_t i, size_t j) const;
    void expect_float(size_t i) const;
    void expect_dtype(size_t i, DType t) const;
    void expect_same_dtype(size_t i, size_t j) const;
    void expect_rank(size_t i, int least, int most = 1 << 20) const;
    /// Reads a dim attribute in 0..rank-1. A negative one counts from the end and is replaced.
    int dim_attribute(std::string_view key, int rank);
    /// Reads the `dtype` attribute, the fallback when it is absent.
    DType dtype_attribute(DType fallback) const;

private:
    const Program& program_;
    std::string_view kind_;
    std::span<const ValueId> inputs_;
    const Origin& origin_;
};

/// One index of an op, as in the einsum "mk,kn->mn". A dim of an operand is the product of its factors.
struct Factor {
    enum class Kind : uint8_t {
        parallel,    ///< may be split; every rank reads the whole of operands that lack it
        contracted,  ///< may be split; outputs that lack it become P(reduce)
        whole,       ///< cannot be split: the kernel needs all of it
        index,       ///< may be split: rows outside the shard count as zero; outputs that lack it become P(reduce)
    };
    Kind kind = Kind::parallel;
    int64_t size = 1;
    ReduceOp reduce = ReduceOp::sum;
    bool operator==(const Factor&) const = default;
};

/// All legal layouts of one op. Operands are in order; each dim lists the ids of its factors, major to minor. An empty
/// list is a dim of size 1 (broadcast), which cannot be split.
struct FactorRule {
    using Dims = std::vector<std::vector<int>>;
    std::vector<Factor> factors;
    std::vector<Dims> inputs;
    std::vector<Dims> outputs;
    /// Inputs that may be P(sum) over an axis: all of these together or none, with the other inputs replicated over it.
    /// Every output is then P(sum). Empty when the op is not linear.
    std::vector<int> linear_in;
    /// Inputs that are added once after the contraction (the bias of matmul). Over an axis that splits a contracted
    /// factor such an input must be P(sum): its value on one rank, zero on the others.
    std::vector<int> added_once;
};

/// Builds a rule dim by dim; a dim of size 1 gets no factor.
class ORRERY_API RuleMaker {
public:
    FactorRule rule;

    /// Adds a factor and returns it as the list for one dim; an empty list when the size is 1.
    std::vector<int> dim(Factor::Kind kind, int64_t size, ReduceOp reduce = ReduceOp::sum);
    std::vector<int> parallel(int64_t size) { return dim(Factor::Kind::parallel, size); }
    std::vector<int> whole(int64_t size) { return dim(Factor::Kind::whole, size); }
    std::vector<int> contracted(int64_t size, ReduceOp reduce = ReduceOp::sum) {
        return dim(Factor::Kind::contracted, size, reduce);
    }
};

}  // namespace orrery
