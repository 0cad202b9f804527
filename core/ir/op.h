#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ir/rule.h"
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
class Infer {
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

class Backward;  // ir/backward.h

/// One attribute that a script may give. Flags default to false and are absent when false.
struct AttributeDef {
    enum class Kind : uint8_t { flag, integer, number, text, integers };
    std::string_view name;
    Kind kind = Kind::flag;
    bool required = false;
    std::optional<Attribute> fallback = {};      ///< stored when the caller gives nothing
    std::vector<std::string_view> choices = {};  ///< text: legal values; empty: any
};

/// An operand of an op, counted among inputs or among outputs.
struct OperandRef {
    bool output = false;
    int index = 0;
};

/// How the elements of the output are those of the inputs, unchanged.
enum class Moves : uint8_t {
    no,
    renames,   ///< all in the same order, in another shape
    permutes,  ///< all, in the order of the attribute `perm`
    cuts,      ///< a block along the attribute `dim`, from `start`
    joins,     ///< the inputs side by side along the attribute `dim`
};

/// Operand `ids` holds indices into dim `dim` of operand `rows` (-1: its last).
struct Lookup {
    int ids = 0;
    int rows = 0;
    int dim = 0;
};

/// All that the core knows of one op. The device knows its kernel, by the same name.
struct OpDef {
    std::string_view name;
    std::vector<std::string_view> operands = {};  ///< names for messages; "bias?" may be absent, "x..." one or more
    std::vector<AttributeDef> attributes = {};
    std::vector<Typed> (*infer)(Infer&) = nullptr;
    FactorRule (*rule)(const Program&, const Op&) = nullptr;
    void (*gradient)(Backward&) = nullptr;  ///< null: nothing flows through
    int64_t (*flops)(const Program&, const Op&) = nullptr;
    std::vector<std::pair<int, int>> in_place = {};  ///< (output, input): may share a buffer when of one type
    /// Outputs that are constants for the gradient (a count).
    std::vector<int> constant_outputs = {};
    int norm_vectors = 0;     ///< of a norm: how many operands behind the first are gain and bias
    bool alias = false;       ///< the output is the input's memory: no kernel
    bool collective = false;  ///< inserted by propagation, run by a communicator: no kernel
    /// Outputs that the attribute `accumulate` makes the kernel add into instead of overwrite.
    std::vector<int> accumulates = {};
    /// The operand whose `global_shape` and `offset` the kernel needs when it is split.
    std::optional<OperandRef> indexed = {};

    // Traits: what passes ask for instead of the op's name.
    /// The output's elements are the inputs'. Asked by gradients of weights, lowering, the checker, verify.
    Moves moves = Moves::no;
    /// The same numbers in another type: a param's copy stands for it. Asked by precision, layout, recompute, verify.
    bool casts = false;
    /// Matrix products of the forward pass. Asked by model flops, layers, the device's rate; precision casts for it.
    bool product = false;
    /// Makes fewer numbers of an operand of any type. Asked by precision, which casts nothing for it.
    bool reduces = false;
    /// Of logits, its first operand, whose gradient it makes going forward. Asked by recompute and by sampling.
    bool loss = false;
    /// Every rank can make its part alone. Asked by propagation, which makes it again rather than moves it.
    bool source = false;
    /// Element by element the sum, maximum or minimum of two. Asked by gradients, layout, lowering, the checker.
    std::optional<ReduceOp> combines = {};
    /// Inputs of which the output is a multiple where the others are single numbers. Asked by lowering, which sums over
    /// micro-batches first, and by verify.
    std::vector<int> multiplies = {};
    /// Asked for the vocabulary of a program: the fewest rows that ids look up.
    std::optional<Lookup> looks_up = {};
    /// By input: the flag that makes the kernel read it with its last two dims swapped. Asked by lowering, which folds
    /// transposes.
    std::vector<std::string_view> swaps = {};
    /// Ops that it does in one; a norm, where it has a residual. Asked by lowering: what runs one of them again makes
    /// no gradient.
    std::vector<std::string_view> fused_of = {};
    /// The kernel that does its own work, "" for that of its name. Asked by the checker and verify.
    std::string_view kernel = {};
};

/// One input's elements, all or a block of them.
bool is_view(const OpDef& def);
/// Element by element the sum of its two inputs.
bool is_sum(const OpDef& def);
/// The name of the kernel that does the op's own work.
std::string_view kernel_of(const OpDef& def);

/// Throws Error naming the kind, with a "did you mean", when there is no such op.
const OpDef& op_def(std::string_view kind);
const OpDef& op_def(std::string_view kind, const Origin& asked);
/// nullptr when there is none.
const OpDef* find_op_def(std::string_view kind);
/// Every op, in the order of the table in core/ir/README.md.
const std::vector<const OpDef*>& all_ops();

/// Checks operand count and attributes against the definition, completes the attributes and infers the outputs.
std::vector<Typed> infer(const OpDef& def, const Program& program, std::span<const ValueId> inputs,
                         Attributes& attributes, const Origin& origin);

}  // namespace orrery
