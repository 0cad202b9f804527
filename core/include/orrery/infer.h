#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

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

}  // namespace orrery
