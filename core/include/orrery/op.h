#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "orrery/infer.h"

namespace orrery {

class Backward;               // orrery/backward.h
enum class Opcode : uint8_t;  // orrery/plan.h

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

/// Operand `ids` holds indices into dim `dim` of `rows` (-1: its last).
struct Lookup {
    int ids = 0;
    OperandRef rows = {};
    int dim = 0;
    bool skips = false;                   ///< an id of -1 is legal, and stands for none
    std::string_view dim_attribute = {};  ///< that says the dim, "": `dim` does
};

/// What the time of a launch goes by. Asked by the simulator's prices.
enum class Work : uint8_t {
    bytes,               ///< of its operands, in as many passes as the software makes
    once,                ///< of its operands, in one pass
    rows,                ///< of the output: it reads the rows that it writes
    product,             ///< multiplications of the last two dims, the last operands' leading ones shared
    weight_product,      ///< the first operand transposed: all but the last dims are contracted
    attention,           ///< q, k, v
    attention_gradient,  ///< of these
};

/// How a sample's numbers are drawn: floats in [low, high), whole numbers in [low, high].
struct Draw {
    double low = 0;
    double high = 1;
};

/// One call of an op, from which its tests are made: gradient, layouts, kernels, text. Sizes are small and distinct, of
/// more than one element; 2 or 3 divides those that may be split (9, 15 and 33 are odd, too). f32 stands for the
/// compute type: kernels run in bf16 and f16, too, where they can.
struct OpSample {
    std::vector<TensorType> operands;
    Attributes attributes = {};
    std::vector<std::vector<std::string>> dims = {};  ///< names by operand, none: unnamed
    /// By operand; where there is none: floats of either sign with 0.1 <= |x| < 1.3, whole numbers 0 or 1.
    std::vector<std::optional<Draw>> draws = {};
    bool derivative = true;  ///< false: the gradient of this form is another than the derivative (of a scaled loss)
};

/// An op of the program and how its inputs lie on the mesh.
struct OpLayouts {
    const Program& program;
    const Op& op;
    const Mesh& mesh;
    std::vector<Layout> inputs;  ///< in operand order
};

/// Adds an op in place of the decomposed one and returns its outputs. It gets that op's phase, scope, stage and origin,
/// is laid out by its own rule, and is not decomposed again. `made`: the outputs of the decomposed op that the new op
/// makes; empty: it makes new values.
using AddPart = std::function<std::vector<ValueId>(std::string_view kind, std::vector<ValueId> inputs,
                                                   Attributes attributes, const std::vector<ValueId>& made)>;

/// All that the core knows of one op. The device knows its kernel, by the same name.
struct OpDef {
    std::string_view name;
    std::vector<std::string_view> operands = {};  ///< names; at the end some "b?" may be absent, or "x..." is 1 or more
    /// Types of operands and of outputs, a letter each, with the '?' and '...' of `operands`: "f F f? -> F s".
    /// Inference and devices check them; `infer` checks what they do not say. Every op has them but a collective.
    ///   f  a float; all f's of one type      F  a float of any type
    ///   a  any type; all a's of one          *  any type
    ///   n  i32 or a float; all n's of one    s  a statistic or scalar: f32 (f64 where the reference kernels run)
    ///   i  i32    u  u32    b  u8
    std::string_view types = {};
    std::vector<AttributeDef> attributes = {};
    std::vector<Typed> (*infer)(Infer&) = nullptr;
    FactorRule (*rule)(const Program&, const Op&) = nullptr;
    void (*gradient)(Backward&) = nullptr;  ///< null: nothing flows through
    /// Optional: replaces the op by others for these input layouts. Called by propagation. Either adds ops with `add`
    /// that make all outputs and returns true, or adds nothing and returns false: then `rule` lays the op out.
    bool (*decompose)(const OpLayouts&, const AddPart& add) = nullptr;
    int64_t (*flops)(const Program&, const Op&) = nullptr;
    std::vector<std::pair<int, int>> in_place = {};  ///< (output, input): may share a buffer when of one type
    /// Outputs that are constants for the gradient (a count).
    std::vector<int> constant_outputs = {};
    int norm_vectors = 0;  ///< of a norm: how many operands behind the first are gain and bias
    bool alias = false;    ///< the output is the input's memory: no kernel
    /// For ops that propagation or lowering inserts: the instruction that the plan runs. Opcode::send stands for the
    /// receive, too; Opcode::kernel: each rank cuts out its block with a kernel, and nothing is sent.
    std::optional<Opcode> collective = {};
    bool between_stages = false;  ///< a collective over the pipeline axis, inserted by lowering
    bool elsewhere = false;       ///< no device plugin here has a kernel for it: it is checked and priced only
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
    Work work = Work::bytes;
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
    /// The op that does the same with operands of 8 bits, a scale of each behind them. Asked by precision "fp8".
    std::string_view quantized = {};
    /// The kernel that does its own work, "" for that of its name. Asked by the checker and verify.
    std::string_view kernel = {};

    /// Calls with which every op but collectives and what runs `elsewhere` is tested (tests/ops).
    std::vector<OpSample> (*samples)() = nullptr;
};

}  // namespace orrery
