#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "orrery/infer.h"

namespace orrery {

class Backward;               // declared in orrery/backward.h
enum class Opcode : uint8_t;  // declared in orrery/plan.h

/// One attribute of an op that a script may give. A flag defaults to false and is absent when false.
struct AttributeDef {
    enum class Kind : uint8_t { flag, integer, number, text, integers };
    std::string_view name;
    Kind kind = Kind::flag;
    bool required = false;
    std::optional<Attribute> fallback = {};      ///< value of the attribute when the script gives none
    std::vector<std::string_view> choices = {};  ///< legal values of a text attribute; empty: any
};

struct OperandRef {
    bool output = false;
    int index = 0;
};

/// How an op moves the elements of its inputs to the output without changing them.
enum class Moves : uint8_t {
    no,
    renames,   ///< keeps all elements in order, in another shape
    permutes,  ///< permutes dims by the attribute `perm`
    cuts,      ///< takes a block along the attribute `dim`, from index `start`
    joins,     ///< concatenates the inputs along the attribute `dim`
    /// Moves element i along the attribute `dim` to i + `by`, around the end. Propagation sets the attribute `axis` if
    /// the dim is split: then no kernel runs, and the ranks of the axis exchange blocks by messages.
    rolls,
};

/// Says that the elements of operand `ids` are row-major indices into `dims` consecutive dims of operand `rows`, from
/// `dim` on (-1: its last dim). If dims > 1, each index occurs at most once.
struct Lookup {
    int ids = 0;
    OperandRef rows = {};
    int dim = 0;
    bool skips = false;                   ///< an id of -1 is legal and selects no row
    std::string_view dim_attribute = {};  ///< attribute that gives the dim; "": the member `dim` does
    int dims = 1;
};

/// Two elements of float operands: their order decides element `result` of an output. All are row-major indices.
struct Rivals {
    int64_t result = 0, first = 0, second = 0;
};

/// Declares that an integer output depends on float operands only through the order of their elements.
struct FloatChoice {
    int output = 0;
    std::vector<int> operands = {};  ///< the operands that `first` and `second` of a pair are elements of
    /// Compares two results of the op, for operands of these shapes, and returns the pairs that, reordered, explain the
    /// difference, at least one for each cause; none if no order explains it.
    std::vector<Rivals> (*differences)(const Attributes&, std::span<const Shape>, const Tensor& want,
                                       const Tensor& have) = nullptr;
};

/// What determines the simulated time of a kernel launch.
enum class Work : uint8_t {
    bytes,               ///< bytes of all operands, times the passes that the software profile makes
    once,                ///< bytes of all operands, in one pass
    rows,                ///< bytes of the output: the kernel reads only the rows that it writes
    product,             ///< a GEMM of the last two dims; leading dims are a batch, which the second operand may lack
    weight_product,      ///< a GEMM with the first operand transposed, which contracts all dims but the last
    attention,           ///< attention of q, k and v
    attention_gradient,  ///< the gradient of attention
    tiled_loss,          ///< GEMMs of the first two operands' size: 3 if an output has the shape of the second, else 1
};

/// The range of random test data: floats in [low, high), integers in [low, high] (both ends included).
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
    /// Ranges of the data by operand. By default floats have either sign and 0.1 <= |x| < 1.3, and integers are 0 or 1.
    std::vector<std::optional<Draw>> draws = {};
    bool derivative = true;  ///< false: the gradient is not the derivative of this call (scaled cross entropy)
};

struct OpLayouts {
    const Program& program;
    const Op& op;
    const Mesh& mesh;
    std::vector<Layout> inputs;  ///< layouts of op.inputs, in order
    /// By input: the axes over which a strategy marked this use of it as split (Mark::What::use).
    std::vector<std::vector<AxisId>> asked;
};

/// Adds one op of a decomposition and returns its outputs. The new op takes over phase, scope, stage and origin of the
/// decomposed op; its own rule lays it out, and it is not decomposed again. `made`: outputs of the decomposed op that
/// the new op produces; empty: it produces new values.
using AddPart = std::function<std::vector<ValueId>(std::string_view kind, std::vector<ValueId> inputs,
                                                   Attributes attributes, const std::vector<ValueId>& made)>;

/// Everything that core knows about one op. A device finds the op's kernel by the same name.
struct OpDef {
    std::string_view name;
    /// Names. A trailing "b?" may be absent; operands "c??" that follow it are given together with it; "x..." is 1 or
    /// more.
    std::vector<std::string_view> operands = {};
    /// Types of the operands and outputs, one letter each, with the endings of `operands`: "f F f? -> F s".
    /// Inference and devices check them; `infer` checks the rest. Every op but a collective has them.
    ///   f  a float; all f's have one type    F  a float of any type
    ///   a  any type; all a's have one type   *  any type
    ///   n  i32 or a float; all n's have one  s  a statistic or scalar: f32 (f64 in reference kernels)
    ///   i  i32    u  u32    b  u8    c  i8
    std::string_view types = {};
    std::vector<AttributeDef> attributes = {};
    std::vector<Typed> (*infer)(Infer&) = nullptr;
    FactorRule (*rule)(const Program&, const Op&) = nullptr;
    void (*gradient)(Backward&) = nullptr;  ///< gradient function; nullptr: no gradient flows through the op
    /// Optional. Propagation calls it to replace the op by ops that suit the layouts of its inputs. It adds ops with
    /// `add` that produce all outputs and returns true, or adds none and returns false; then `rule` lays the op out.
    bool (*decompose)(const OpLayouts&, const AddPart& add) = nullptr;
    int64_t (*flops)(const Program&, const Op&) = nullptr;
    std::vector<std::pair<int, int>> in_place = {};  ///< pairs (output, input) that may share memory if of one type
    /// Indices of outputs that the gradient treats as constants (a count).
    std::vector<int> constant_outputs = {};
    int norm_vectors = 0;  ///< for a norm: number of gain and bias operands after the first operand
    bool alias = false;    ///< the output is the memory of the input: no kernel runs
    /// For ops that propagation or lowering inserts: the opcode of the plan's instruction. Opcode::send stands for send
    /// and receive. Opcode::kernel: each rank cuts out its block with a kernel, and nothing is sent.
    std::optional<Opcode> collective = {};
    bool between_stages = false;  ///< true: a collective over the pipeline axis, inserted by lowering
    bool elsewhere = false;  ///< true: no device plugin here has a kernel for the op: it is only checked and priced
    /// Indices of outputs that the kernel adds to, not overwrites, when the attribute `accumulate` is set.
    std::vector<int> accumulates = {};
    /// If this operand is split, the kernel needs the attributes `global_shape` and `offset`.
    std::optional<OperandRef> indexed = {};

    // Traits: passes check these fields instead of the name of the op.

    /// How the op moves elements. Used by gradients of weights, lowering, the plan checker and verify.
    Moves moves = Moves::no;
    /// The op converts the type: a copy of a param counts as the param. Used by precision, layout, recompute, verify.
    bool casts = false;
    /// The op is a forward GEMM, whose operands precision casts. Used by model FLOPs, layers and device rates.
    bool product = false;
    Work work = Work::bytes;
    /// The op reduces an operand of any type. Used by precision, which adds no casts for such ops.
    bool reduces = false;
    /// The op is a loss over logits, its first operand unless `logits` is set, and computes their gradient. Used by
    /// recompute and sampling.
    bool loss = false;
    /// True when each rank can compute its output block alone: propagation then recomputes it and sends nothing.
    bool source = false;
    /// The op is the elementwise sum, max or min of two inputs. Used by gradients, layout, lowering, plan checker.
    std::optional<ReduceOp> combines = {};
    /// Indices of inputs that the output is proportional to when the other inputs are scalars. Used by verify, and by
    /// lowering, which sums over micro-batches first.
    std::vector<int> multiplies = {};
    /// The op looks up rows by ids. The vocabulary of a program is the smallest number of rows among its lookups.
    std::optional<Lookup> looks_up = {};
    /// The op compares floats, so rounding may change a result where they are nearly equal. Used by verify.
    std::optional<FloatChoice> choice = {};
    /// By input: name of the flag that makes the kernel read the input with its last two dims swapped. Used by lowering
    /// to fold transposes.
    std::vector<std::string_view> swaps = {};
    /// Names of ops that this op fuses; for a norm, only when it has a residual. Used by lowering: a backward op that
    /// repeats one of them is recomputation and not a gradient.
    std::vector<std::string_view> fused_of = {};
    /// Name of the variant of this op with 8-bit operands, each followed by its scale. Used by precision "fp8".
    std::string_view quantized = {};
    /// Name of the kernel that does the work of this op; "": the op's name. Used by the plan checker and verify.
    std::string_view kernel = {};

    int indexed_dim = -1;                     ///< only a split of this dim of `indexed` counts; -1: of any dim
    bool (*indexed_if)(const Op&) = nullptr;  ///< false for an op that does not need them; nullptr: every op does
    /// Pairs (operand, other) of optional operands: a script that gives the other alone gives it for both.
    std::vector<std::pair<int, int>> stands_in = {};

    /// Returns calls to test the op with (tests/ops). Every op has them except collectives and ops with `elsewhere`.
    std::vector<OpSample> (*samples)() = nullptr;

    /// For a loss that computes its logits itself: returns the op (kind, inputs, attributes) that computes them.
    Op (*logits)(const Op& loss) = nullptr;
};

}  // namespace orrery
