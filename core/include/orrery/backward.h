#pragma once
#include <optional>
#include <string_view>
#include <vector>

#include "orrery/program.h"

namespace orrery {

class Builder;

/// What the gradient of one op sees. Ops that it adds belong to the backward phase, to the scope and to the forward op
/// of the op. A gradient that is one constant everywhere (the seed, sums of it) stays symbolic until it must be a
/// value.
class ORRERY_API Backward {
public:
    /// Gradients of one value while they are collected.
    struct Slot {
        std::optional<double> uniform;  ///< adds this constant to every element
        ValueId sum = none;             ///< the sum of the contributions so far
        struct Piece {                  ///< a contribution to a part of the value: start.. along dim
            int dim;
            int64_t start;
            ValueId value;
        };
        std::vector<Piece> pieces;
        bool empty() const { return !uniform && sum == none && pieces.empty(); }
    };

    Backward(Program& program, Builder& builder, std::vector<Slot>& slots, const std::vector<char>& wanted)
        : program_(program), builder_(builder), slots_(slots), wanted_(wanted) {}
    void begin(OpId id);

    Program& program() const { return program_; }
    const Op& op() const { return op_; }
    const Attributes& attributes() const { return op_.attributes; }
    size_t count() const { return op_.inputs.size(); }
    ValueId in(size_t i) const { return op_.inputs[i]; }
    ValueId out(size_t i = 0) const { return op_.outputs[i]; }
    const TensorType& type(ValueId id) const { return program_.value(id).type; }
    const Shape& shape(ValueId id) const { return program_.value(id).type.shape; }
    int rank(ValueId id) const { return static_cast<int>(shape(id).size()); }

    /// Whether anything that trains depends on input i.
    bool wants(size_t i) const { return wanted_[static_cast<size_t>(in(i))] != 0; }
    /// Whether a gradient arrived at output o.
    bool has_dy(size_t o) const { return !slots_[static_cast<size_t>(out(o))].empty(); }
    /// The constant that the gradient of output o is; nullopt when it is a value.
    std::optional<double> uniform(size_t o = 0) const;
    /// The gradient of output o, in the type of the output.
    ValueId dy(size_t o = 0);
    /// The gradient of output o, in the type in which it came (f32 weight gradients of bf16 weights).
    ValueId raw_dy(size_t o = 0);

    /// Appends an op; the result names dims as inference finds them.
    ValueId one(std::string_view kind, std::vector<ValueId> inputs, Attributes attributes = {});
    std::vector<ValueId> add(std::string_view kind, std::vector<ValueId> inputs, Attributes attributes = {});
    /// Appends a value made by an existing op (one more output).
    ValueId append(Value value);
    ValueId scalar(double value, DType dtype);
    ValueId cast(ValueId x, DType dtype);
    /// x itself when the shape is right, otherwise a reshape with the names of `like`.
    ValueId reshape_like(ValueId x, ValueId like);

    /// The gradient with the names of `like`, of the same shape.
    ValueId named_like(ValueId gradient, ValueId like);

    /// Adds to the gradient of input i; sums over the dims that input i was broadcast along.
    void give(size_t i, ValueId gradient);
    /// The gradient of every element of input i is this constant.
    void give_uniform(size_t i, double value);
    /// Adds to a part of the gradient of input i: `size of gradient` from start along dim. Parts that tile the whole
    /// value become one concat.
    void give_piece(size_t i, int dim, int64_t start, ValueId gradient);
    /// Sum over the dims that `like` was broadcast along, in f32 when `like` is a weight.
    ValueId sum_to(ValueId gradient, ValueId like);
    /// True for a param, or a cast, reshape, transpose or slice of one.
    bool is_weight(ValueId id) const;
    /// Throws when a gradient arrived at an output that passes none on.
    void expect_no_dy(size_t o, std::string_view name) const;

    /// The whole gradient of a value as one value; none when there is none.
    ValueId total(ValueId id);

private:
    void accumulate(ValueId target, ValueId gradient);
    bool fresh(ValueId value) const;
    bool only_viewed(ValueId id) const;

    Program& program_;
    Builder& builder_;
    std::vector<Slot>& slots_;
    const std::vector<char>& wanted_;
    Op op_;
    size_t first_ = 0;            ///< values from here on were made for op_
    std::vector<ValueId> given_;  ///< of those: some value's gradient already
};

}  // namespace orrery
