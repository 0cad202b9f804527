#pragma once
#include <optional>
#include <string_view>
#include <vector>

#include "orrery/program.h"

namespace orrery {

class Builder;

/// Builds the gradient of one op at a time; OpDef::gradient gets it as its argument. Ops that are added through it
/// belong to the backward phase, have the scope of the differentiated op and refer to it as their forward op. A
/// gradient with one constant for all elements (1 for the loss) stays a number until an op needs it as a tensor.
class ORRERY_API Backward {
public:
    struct Slot {
        std::optional<double> uniform;  ///< a constant to add to every element of the gradient
        ValueId sum = none;             ///< the value that sums all contributions to the whole gradient
        struct Piece {                  ///< a contribution to a block of the gradient, from index `start` of dim `dim`
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

    /// True when input i is a param or depends on one, so that it needs a gradient.
    bool wants(size_t i) const { return wanted_[static_cast<size_t>(in(i))] != 0; }
    bool has_dy(size_t o) const { return !slots_[static_cast<size_t>(out(o))].empty(); }
    /// The constant that every element of the gradient of output o equals; nullopt when the gradient is a tensor.
    std::optional<double> uniform(size_t o = 0) const;
    /// The gradient of output o, cast to the type of the output; zeros when no gradient reaches it.
    ValueId dy(size_t o = 0);
    /// The gradient of output o without a cast (gradients of bf16 weights are f32).
    ValueId raw_dy(size_t o = 0);

    /// Appends an op named `kind` to the program and returns its first output.
    ValueId one(std::string_view kind, std::vector<ValueId> inputs, Attributes attributes = {});
    std::vector<ValueId> add(std::string_view kind, std::vector<ValueId> inputs, Attributes attributes = {});
    /// Appends `value` to the program and returns its id; the caller makes it an output of an op.
    ValueId append(Value value);
    ValueId scalar(double value, DType dtype);
    ValueId cast(ValueId x, DType dtype);
    /// Returns x reshaped to the shape and dim names of `like`; x itself when the shapes are equal.
    ValueId reshape_like(ValueId x, ValueId like);

    /// Returns `gradient` with the dim names of `like`; both have the same shape.
    ValueId named_like(ValueId gradient, ValueId like);

    /// Adds a contribution to the gradient of input i, summed over the dims along which the op broadcast that input.
    void give(size_t i, ValueId gradient);
    /// Adds a constant to every element of the gradient of input i.
    void give_uniform(size_t i, double value);
    /// Adds a contribution to a block of the gradient of input i: the block begins at `start` along `dim` and has the
    /// shape of `gradient`. Blocks that tile the value are joined by one concat, others are padded and added.
    void give_piece(size_t i, int dim, int64_t start, ValueId gradient);
    /// Returns `gradient` summed over the dims along which `like` was broadcast; sums in f32 when `like` is a weight.
    ValueId sum_to(ValueId gradient, ValueId like);
    /// True when the value is a param, or a cast, reshape, transpose or slice of one.
    bool is_weight(ValueId id) const;
    /// Throws Error when output o has received a gradient; for outputs that are not differentiable.
    void expect_no_dy(size_t o, std::string_view name) const;

    /// Returns the total gradient of a value; `none` when it has received no gradient.
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
    size_t first_ = 0;            ///< id of the first value made for the gradient of op_
    std::vector<ValueId> given_;  ///< ids from first_ on that are already the gradient of some value
};

}  // namespace orrery
