#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/layout.h"
#include "orrery/program.h"

namespace orrery {

struct Typed {
    TensorType type;
    std::vector<std::string> dims;
    bool operator==(const Typed&) const = default;
};

/// What OpDef::infer works with: operands and attributes of one op; it may complete attributes (a missing scale, a
/// negative dim). Failed checks throw Error with the op, its operands, their shapes with dim names, and origins.
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
    int64_t op_count() const { return static_cast<int64_t>(program_.ops.size()); }

    Attributes attributes;

    /// Describes input i for messages: "x f32[batch=8,embed=512] (mlp.lua:3)".
    std::string show(size_t i) const;
    /// Throws Error "KIND: WHAT; REMEDY" at the origin of the op, such as "matmul: inner dims differ; ...".
    [[noreturn]] void fail(const std::string& what, const std::string& remedy = "") const;
    /// Returns the common name of dim `di` of input i and dim `dj` of input j; "" matches any. Throws when they differ.
    std::string unify(size_t i, int di, size_t j, int dj) const;
    /// Throws unless both dims have one size; returns their common name. `what` names the dims in errors: "inner dims".
    std::string same_dim(size_t i, int di, size_t j, int dj, std::string_view what) const;
    /// Returns the type of both inputs, with common dim names. Throws Error unless types and names agree.
    Typed same_type(size_t i, size_t j) const;
    void expect_float(size_t i) const;
    void expect_dtype(size_t i, DType t) const;
    void expect_same_dtype(size_t i, size_t j) const;
    void expect_rank(size_t i, int least, int most = 1 << 20) const;
    /// Returns the dim attribute `key`, 0 to rank - 1. A negative one counts from the end and is replaced.
    int dim_attribute(std::string_view key, int rank);
    /// Returns the `dtype` attribute, or the fallback when it is absent.
    DType dtype_attribute(DType fallback) const;

private:
    const Program& program_;
    std::string_view kind_;
    std::span<const ValueId> inputs_;
    const Origin& origin_;
};

/// One index of an op, such as k in the einsum "mk,kn->mn". A dim of an operand is the product of its factors.
struct Factor {
    enum class Kind : uint8_t {
        parallel,    ///< may be split over ranks; every rank reads the whole of operands without this index
        contracted,  ///< may be split over ranks; outputs without this index become P(reduce)
        whole,       ///< must not be split, as the kernel needs the whole dim (but see `turn`)
        index,  ///< may be split: rows outside the shard count as zero; outputs without this index become P(reduce)
    };
    Kind kind = Kind::parallel;
    int64_t size = 1;
    ReduceOp reduce = ReduceOp::sum;
    /// For a `whole` factor: the op moves element i to i + turn, around the end. It may be split after all if `turn` is
    /// a multiple of the block of the outermost axis that splits it: then the ranks of that axis exchange blocks.
    int64_t turn = 0;
    bool operator==(const Factor&) const = default;
};

/// All legal layouts of one op, given by its factors. Each dim of an operand lists ids of factors, major to minor. An
/// empty list is a dim of size 1 (broadcast), which cannot be split.
struct FactorRule {
    using Dims = std::vector<std::vector<int>>;
    std::vector<Factor> factors;
    std::vector<Dims> inputs;
    std::vector<Dims> outputs;
    /// Inputs that may be P(sum) over an axis, either all in this list or none, with the other inputs replicated over
    /// it. Every output is then P(sum). Empty when the op is not linear.
    std::vector<int> linear_in;
    /// Inputs that are added once after the contraction (the bias of matmul). Over an axis that splits a contracted
    /// factor such an input must be P(sum): its value on one rank, zero on the others.
    std::vector<int> added_once;
};

/// Builds a FactorRule dim by dim; a dim of size 1 gets no factor.
class ORRERY_API RuleMaker {
public:
    FactorRule rule;

    /// Adds a factor and returns the list of ids for its dim; an empty list when the size is 1.
    std::vector<int> dim(Factor::Kind kind, int64_t size, ReduceOp reduce = ReduceOp::sum);
    std::vector<int> parallel(int64_t size) { return dim(Factor::Kind::parallel, size); }
    std::vector<int> whole(int64_t size) { return dim(Factor::Kind::whole, size); }
    std::vector<int> contracted(int64_t size, ReduceOp reduce = ReduceOp::sum) {
        return dim(Factor::Kind::contracted, size, reduce);
    }
};

}  // namespace orrery
