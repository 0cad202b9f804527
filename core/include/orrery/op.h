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

/// One attribute that a script may give. A flag defaults to false and is absent when false.
struct AttributeDef {
    enum class Kind : uint8_t { flag, integer, number, text, integers };
    std::string_view name;
    Kind kind = Kind::flag;
    bool required = false;
    std::optional<Attribute> fallback = {};      ///< stored when the script gives no value
    std::vector<std::string_view> choices = {};  ///< text: legal values; empty: any
};

/// An input or an output of an op, by its index.
struct OperandRef {
    bool output = false;
    int index = 0;
};

/// How an op moves the elements of its inputs to the output without changing them.
enum class Moves : uint8_t {
    no,
    renames,   ///< all elements in the same order, in another shape
    permutes,  ///< all elements, in the order of the attribute `perm`
    cuts,      ///< a block along the attribute `dim`, from `start`
    joins,     ///< concatenation along the attribute `dim`
};

/// Says that operand `ids` contains indices into dim `dim` of `rows` (-1: its last dim).
struct Lookup {
    int ids = 0;
    OperandRef rows = {};
    int dim = 0;
    bool skips = false;                   ///< an id of -1 is legal and selects no row
    std::string_view dim_attribute = {};  ///< attribute that gives the dim; "": the member `dim` does
};

/// What determines the time of a launch; used by the prices of the simulator.
enum class Work : uint8_t {
    bytes,               ///< bytes of the operands, in as many passes as the software profile makes
    once,                ///< bytes of the operands, in one pass
    rows,                ///< bytes of the output: it reads only the rows that it writes
    product,             ///< a GEMM: the last two dims, batched over leading dims unless the second operand has none
    weight_product,      ///< a GEMM with the first operand transposed: all dims but the last are contracted
    attention,           ///< of q, k and v
    attention_gradient,  ///< the gradient of attention
};

/// The range of random test data: floats in [low, high), integers in [low, high].
struct Draw {
    double low = 0;
    double high = 1;
};

/// One call of an op, from which the tests of its gradient, layouts, kernels and text form are generated. Sizes are
/// small, distinct and more than 1; dims that may be split are divisible by 2 or 3 (9, 15 and 33 are odd as well). f32
/// stands for the compute type: tests also run the kernels in bf16 and f16 where they can.
struct OpSample {
    std::vector<TensorType> operands;
    Attributes attributes = {};
    std::vector<std::vector<std::string>> dims = {};  ///< dim names by operand; empty: unnamed
    /// Ranges by operand. By default floats have either sign and 0.1 <= |x| < 1.3, and integers are 0 or 1.
    std::vector<std::optional<Draw>> draws = {};
    bool derivative = true;  ///< false: the gradient of this call is not the derivative (of a scaled loss)
};

/// An op of the program with the layouts of its inputs.
struct OpLayouts {
    const Program& program;
    const Op& op;
    const Mesh& mesh;
    std::vector<Layout> inputs;  ///< in operand order
};

/// Adds an op in place of the decomposed one and returns its outputs. The new op takes over the phase, scope, stage and
/// origin; its own rule lays it out, and it is not decomposed again. `made`: the outputs of the decomposed op that the
/// new op produces; empty: it produces new values.
using AddPart = std::function<std::vector<ValueId>(std::string_view kind, std::vector<ValueId> inputs,
                                                   Attributes attributes, const std::vector<ValueId>& made)>;

/// Everything that the core knows about one op. A device finds its kernel by the same name.
struct OpDef {
    std::string_view name;
    std::vector<std::string_view> operands = {};  ///< names; trailing "b?" may be absent, "x..." is 1 or more
    /// Types of the operands and outputs, one letter each, with the '?' and '...' of `operands`: "f F f? -> F s".
    /// Inference and devices check them; `infer` checks the rest. Every op but a collective has them.
    ///   f  a float; all f's have one type    F  a float of any type
    ///   a  any type; all a's have one type   *  any type
    ///   n  i32 or a float; all n's have one  s  a statistic or scalar: f32 (f64 in reference kernels)
    ///   i  i32    u  u32    b  u8
    std::string_view types = {};
    std::vector<AttributeDef> attributes = {};
    std::vector<Typed> (*infer)(Infer&) = nullptr;
    FactorRule (*rule)(const Program&, const Op&) = nullptr;
    void (*gradient)(Backward&) = nullptr;  ///< nullptr: no gradient flows through
    /// Optional: replaces the op by others for these input layouts. Propagation calls it. It either adds ops with `add`
    /// that produce all outputs and returns true, or adds nothing and returns false; then `rule` lays the op out.
    bool (*decompose)(const OpLayouts&, const AddPart& add) = nullptr;
    int64_t (*flops)(const Program&, const Op&) = nullptr;
    std::vector<std::pair<int, int>> in_place = {};  ///< (output, input): may share a buffer when their types are equal
    /// Outputs that the gradient treats as constants (a count).
    std::vector<int> constant_outputs = {};
    int norm_vectors = 0;  ///< for a norm: number of gain and bias operands after the first operand
    bool alias = false;    ///< the output is the memory of the input: no kernel runs
    /// For ops that propagation or lowering inserts: the instruction of the plan. Opcode::send stands for the receive
    /// too. Opcode::kernel: each rank cuts out its block with a kernel, and nothing is sent.
    std::optional<Opcode> collective = {};
    bool between_stages = false;  ///< a collective over the pipeline axis, which lowering inserts
    bool elsewhere = false;       ///< no device plugin here has a kernel for it: it is only checked and priced
    /// Outputs that the kernel adds to, instead of overwriting, when the attribute `accumulate` is set.
    std::vector<int> accumulates = {};
    /// The operand whose `global_shape` and `offset` the kernel needs when that operand is split.
    std::optional<OperandRef> indexed = {};

    // Traits: passes ask for them instead of comparing the name of the op.
    /// Used by gradients of weights, lowering, the plan checker and verify.
    Moves moves = Moves::no;
    /// Converts the type: the copy of a param stands for it. Used by precision, layout, recompute, verify.
    bool casts = false;
    /// A GEMM of the forward pass, whose operands precision casts. Used by model FLOPs, layers and device rates.
    bool product = false;
    Work work = Work::bytes;
    /// Reduces an operand of any type. Used by precision, which adds no casts for it.
    bool reduces = false;
    /// A loss over logits, its first operand; it also computes their gradient. Used by recompute and sampling.
    bool loss = false;
    /// Every rank can compute its block alone. Used by propagation, which computes it again instead of sending it.
    bool source = false;
    /// The elementwise sum, max or min of two inputs. Used by gradients, layout, lowering and the plan checker.
    std::optional<ReduceOp> combines = {};
    /// Inputs that the output is proportional to when the other inputs are scalars. Used by lowering, which sums over
    /// micro-batches first, and by verify.
    std::vector<int> multiplies = {};
    /// Used for the vocabulary of a program: the smallest number of rows among its lookups.
    std::optional<Lookup> looks_up = {};
    /// By input: the flag that makes the kernel read it with its last two dims swapped. Used by lowering to fold
    /// transposes.
    std::vector<std::string_view> swaps = {};
    /// Ops that this op fuses; for a norm, only when it has a residual. Used by lowering: a backward op that repeats
    /// one of them is recomputation and not a gradient.
    std::vector<std::string_view> fused_of = {};
    /// The op that does the same with 8-bit operands followed by their scales. Used by precision "fp8".
    std::string_view quantized = {};
    /// The kernel that does the work of this op; "": the kernel with its name. Used by the plan checker and verify.
    std::string_view kernel = {};

    /// Calls to test the op with (tests/ops); every op has them except collectives and those with `elsewhere`.
    std::vector<OpSample> (*samples)() = nullptr;
};

}  // namespace orrery
