// Attention and rope: q [B,T,H,D], k [B,S,G,D], v [B,S,G,V], o [B,T,H,V], lse f32 [B,H,T]. B batch, T queries, S keys,
// H query heads, G key/value heads (G divides H), D head dim, V head dim of values. The index of an attention is four
// i32 operands: documents and positions of the queries [B,T], then of the keys [B,S].
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ir/ops/attention_heads.h"
#include "ir/ops/common.h"

namespace orrery::ops {

namespace {

/// Checks the attribute `window`, the number of keys that a query sees up to its own position; 0 (all) is removed.
void check_window(Infer& at) {
    const int64_t window = at.attributes.integer("window");
    if (window < 0) {
        at.fail(fmt::format("window = {} is negative", window),
                "give 1 or more, the query's own among them, or 0 for all keys up to it");
    }
    if (window == 0) {
        at.attributes.erase("window");
    } else if (!at.attributes.flag("causal")) {
        at.fail(
            fmt::format("window = {} needs causal attention: a window has the last keys up to the query's own", window),
            "add causal = true, or leave the window out");
    }
}

/// Number of blocks of queries and of keys; a query sees keys of its own block alone.
int64_t blocks_of(const Attributes& attributes) { return std::max<int64_t>(attributes.integer("blocks"), 1); }

/// The first operand of the index; 0: the op has none.
size_t index_of(std::string_view kind, size_t operands) {
    if (kind == "attention") return operands > 3 ? 3 : 0;
    return operands >= 10 ? 6 : 0;
}

void check_index(Infer& at, size_t first) {
    for (size_t i = first; i < first + 4; ++i) {
        const size_t of = i < first + 2 ? 0 : 1;
        at.expect_rank(i, 2, 2);
        at.same_dim(i, 0, of, 0, "batch dims");
        at.same_dim(i, 1, of, 1, of == 0 ? "dims of queries" : "dims of keys");
    }
}

/// Checks the attributes `blocks` and `rolled`; those that change nothing are removed.
void check_blocks(Infer& at, bool indexed) {
    const int64_t blocks = at.attributes.integer("blocks"), queries = at.shape(0)[1], keys = at.shape(1)[1];
    if (blocks < 0 || (blocks > 1 && (queries % blocks != 0 || keys % blocks != 0)))
        at.fail(fmt::format("blocks = {} does not divide {} queries and {} keys: {} and {}", blocks, queries, keys,
                            at.show(0), at.show(1)),
                "give a number that divides both");
    if (blocks < 2) at.attributes.erase("blocks");
    if (!at.attributes.has("rolled")) return;
    const int64_t rolled = at.attributes.integer("rolled"), block = keys / std::max<int64_t>(blocks, 1);
    if (indexed && rolled != 0)
        at.fail(fmt::format("both rolled = {} and an index give the places of keys", rolled),
                "roll the documents and positions of keys with the keys, and leave rolled out");
    if (rolled % block != 0 || (blocks < 2 && rolled != 0))
        at.fail(fmt::format("rolled = {} must move whole blocks, of 2 or more: there are {} blocks of {} keys", rolled,
                            std::max<int64_t>(blocks, 1), block),
                "give blocks, and as rolled a multiple of the keys in a block");
    const int64_t by = (rolled % keys + keys) % keys;
    if (by == 0 || !at.attributes.flag("causal"))
        at.attributes.erase("rolled");
    else
        at.attributes.set("rolled", by);
}

/// Checks q, k, v, the index and the attributes; returns the type of o.
Typed check_heads(Infer& at) {
    for (size_t i = 0; i < 3; ++i) at.expect_rank(i, 4, 4);
    at.same_dim(0, 0, 1, 0, "batch dims");
    at.same_dim(0, 3, 1, 3, "head dims");
    at.same_dim(1, 0, 2, 0, "batch dims");
    at.same_dim(1, 1, 2, 1, "dims of keys and values");
    at.same_dim(1, 2, 2, 2, "key and value heads");
    const int64_t heads = at.shape(0)[2];
    const int64_t groups = at.shape(1)[2];
    if (heads % groups != 0) {
        at.fail(fmt::format("{} query heads are not divisible by {} key/value heads: {} and {}", heads, groups,
                            at.show(0), at.show(1)),
                "the first must be a multiple of the second");
    }
    const size_t index = index_of(at.kind(), at.count());
    if (index > 0) {
        check_index(at, index);
    } else if (at.attributes.flag("causal") && at.shape(0)[1] != at.shape(1)[1]) {
        at.fail(fmt::format("causal attention needs as many queries as keys: {} and {}", at.show(0), at.show(1)),
                "or give the documents and positions of queries and of keys");
    }
    check_window(at);
    check_blocks(at, index > 0);
    if (!at.attributes.has("scale")) {
        at.attributes.set("scale", 1 / std::sqrt(static_cast<double>(at.shape(0)[3])));
    }
    Typed o = at.typed(0);
    if (at.shape(2)[3] == at.shape(0)[3]) return o;
    o.type.shape[3] = at.shape(2)[3];
    o.dims[3] = at.dims(2)[3];
    return o;
}

Typed statistics_of(const Typed& q) {
    const Shape& shape = q.type.shape;
    return make_typed(DType::f32, {shape[0], shape[2], shape[1]}, {q.dims[0], q.dims[2], q.dims[1]});
}

std::vector<Typed> infer_attention(Infer& at) {
    Typed o = check_heads(at);
    Typed lse = statistics_of(o);
    return {std::move(o), std::move(lse)};
}

std::vector<Typed> infer_attention_grad(Infer& at) {
    const Typed o = check_heads(at);
    const TensorType lse = statistics_of(o).type;
    const auto fit = [&](size_t i, const TensorType& type) {
        if (at.type(i) != type) at.fail(fmt::format("{} does not fit {}", at.show(i), at.show(0)));
    };
    fit(3, o.type);
    fit(4, lse);
    at.same_type(3, 5);
    if (at.count() % 2 != 0) fit(at.count() - 1, lse);
    return {at.typed(0), at.typed(1), at.typed(2)};
}

// The factor rule of attention. H query heads are [g, r]: r of them share each of the g key/value heads. A split of g
// splits every operand. A split of r or of the queries leaves k and v whole on each rank, and makes their gradients
// partial. A split of the blocks splits queries and keys.
FactorRule heads_rule(const Program& program, const Op& op) {
    const Shape& q = shape_of(program, op.inputs[0]);
    const Shape& k = shape_of(program, op.inputs[1]);
    const bool grad = op.kind == "attention_grad";
    const auto of_queries = grad ? Factor::Kind::contracted : Factor::Kind::parallel;
    const int64_t blocks = blocks_of(op.attributes);
    RuleMaker make;
    const auto batch = make.parallel(q[0]);
    auto queries = make.parallel(blocks), keys = queries;
    const auto join = [](std::vector<int>& major, const std::vector<int>& minor) {
        major.insert(major.end(), minor.begin(), minor.end());
    };
    join(queries, make.dim(of_queries, q[1] / blocks));
    join(keys, make.whole(k[1] / blocks));
    const auto group = make.parallel(k[2]);
    const auto repeat = make.dim(of_queries, q[2] / k[2]);
    const auto head_dim = make.whole(q[3]);
    const auto value_dim = make.whole(shape_of(program, op.inputs[2])[3]);
    std::vector<int> heads = group;
    join(heads, repeat);
    const FactorRule::Dims like_q{batch, queries, heads, head_dim}, like_o{batch, queries, heads, value_dim};
    const FactorRule::Dims like_k{batch, keys, group, head_dim}, like_v{batch, keys, group, value_dim};
    const FactorRule::Dims lse{batch, heads, queries}, at_queries{batch, queries}, at_keys{batch, keys};
    auto& inputs = make.rule.inputs;
    inputs = {like_q, like_k, like_v};
    if (grad) inputs.insert(inputs.end(), {like_o, lse, like_o});
    if (index_of(op.kind, op.inputs.size()) > 0)
        inputs.insert(inputs.end(), {at_queries, at_queries, at_keys, at_keys});
    if (inputs.size() < op.inputs.size()) inputs.push_back(lse);
    if (grad) {
        make.rule.outputs = {like_q, like_k, like_v};
    } else {
        make.rule.outputs = {like_o, lse};
    }
    return make.rule;
}

void grad_attention(Backward& g) {
    std::vector<ValueId> inputs{g.in(0), g.in(1), g.in(2), g.out(0), g.out(1), g.dy()};
    for (size_t i = 3; i < g.count(); ++i) inputs.push_back(g.in(i));
    if (g.has_dy(1)) inputs.push_back(g.dy(1));
    const auto d = g.add("attention_grad", std::move(inputs), g.attributes());
    for (size_t i = 0; i < 3; ++i) g.give(i, d[i]);
}

/// True where a rank's part of the queries needs its place among all: a causal mask without an index, or blocks.
bool needs_place(const Op& op) {
    return op.attributes.has("blocks") || (op.attributes.flag("causal") && index_of(op.kind, op.inputs.size()) == 0);
}

/// Twice the number of pairs of a query of block p and a key of block p - rolled / block in a causal mask, for places a
/// and b in a block with 0 <= rolled + a - b < window.
int64_t twice_causal_pairs(int64_t block, int64_t rolled, int64_t window) {
    const auto twice_below = [&](int64_t limit) {  // the pairs with a - b < limit
        const int64_t rest = std::max<int64_t>(block - std::abs(limit), 0);
        return limit <= 0 ? rest * rest : 2 * block * block - rest * rest;
    };
    return twice_below(window - rolled) - twice_below(-rolled);
}

// Twice the number of scores. A causal mask leaves about half of the T T scores of a head. A window of W also removes a
// triangle of side T - W, which leaves W (2 T - W) / 2. Documents are data: what they remove is not subtracted, and of
// P blocks one P-th is counted. The P blocks of a ring sum to what one attention has.
int64_t twice_scores(const Program& program, const Op& op) {
    const Shape& q = shape_of(program, op.inputs[0]);
    const int64_t keys = shape_of(program, op.inputs[1])[1], blocks = blocks_of(op.attributes);
    const int64_t heads = q[0] * q[2], block = keys / blocks, rolled = op.attributes.integer("rolled");
    if (!op.attributes.flag("causal")) return 2 * heads * q[1] * block;
    const int64_t window = op.attributes.has("window") ? std::min(op.attributes.integer("window"), keys) : keys;
    if (blocks > 1 && index_of(op.kind, op.inputs.size()) == 0)
        return heads * (blocks - rolled / block) * twice_causal_pairs(block, rolled, window);
    return heads * window * (q[1] == keys ? 2 * keys - window : 2 * q[1]) / blocks;
}

// FLOPs: two GEMMs [T,D] x [D,S] and [T,S] x [S,V] per head.
int64_t attention_flops(const Program& program, const Op& op) {
    return twice_scores(program, op) * (shape_of(program, op.inputs[0])[3] + shape_of(program, op.inputs[2])[3]);
}

// FLOPs of the gradient: five GEMMs, the scores again, dq and dk with D, dp and dv with V.
int64_t attention_grad_flops(const Program& program, const Op& op) {
    return twice_scores(program, op) *
           (3 * shape_of(program, op.inputs[0])[3] + 2 * shape_of(program, op.inputs[2])[3]);
}

constexpr std::string_view scalings[] = {"factor",    "low_freq_factor", "high_freq_factor",  "beta_fast",
                                         "beta_slow", "truncate",        "original_positions"};

/// Checks two numbers that bound a range, such as those of wavelengths.
void check_range(Infer& at, std::string_view first, std::string_view second) {
    const double low = at.attributes.number(first), high = at.attributes.number(second);
    if (low > 0 && low < high && std::isfinite(high)) return;
    at.fail(fmt::format("{} = {} and {} = {} are not a range of wavelengths", first, low, second, high),
            "give numbers above 0, the second the larger");
}

/// Checks the attributes of rope that scale positions. `factor` alone scales all wavelengths; low_freq_factor and
/// high_freq_factor (llama3), or beta_fast and beta_slow (yarn), are given together, with original_positions. A factor
/// of 1 scales nothing: all are removed.
void check_scaling(Infer& at) {
    Attributes& given = at.attributes;
    const double factor = given.number("factor", 1);
    if (!std::isfinite(factor) || factor <= 0)
        at.fail(fmt::format("factor = {} is not a valid scaling of positions", factor), "give a number above 0, as 8");
    const bool yarn = given.has("beta_fast") || given.has("beta_slow") || given.has("truncate");
    int64_t parts = 0;
    for (const std::string_view name : scalings) parts += name != "factor" && name != "truncate" && given.has(name);
    const bool llama3 = given.has("low_freq_factor") || given.has("high_freq_factor");
    if (yarn && (llama3 || parts < 3 || !given.has("factor")))
        at.fail("scaling by yarn needs factor, beta_fast, beta_slow and original_positions",
                "give all four, or factor alone to scale every wavelength");
    if (!yarn && parts > 0 && (parts < 3 || !given.has("factor")))
        at.fail("scaling by wavelength needs factor, low_freq_factor, high_freq_factor and original_positions",
                "give all four, or factor alone to scale every wavelength");
    if (parts > 0) {
        if (yarn)
            check_range(at, "beta_slow", "beta_fast");
        else
            check_range(at, "low_freq_factor", "high_freq_factor");
        if (const int64_t positions = given.integer("original_positions"); positions < 1)
            at.fail(fmt::format("original_positions = {} is too small", positions), "give 1 or more");
    }
    if (factor != 1) return;
    for (const std::string_view name : scalings) given.erase(name);
}

// Rope: y [B,T,H,D] is x with the halves of D rotated by angles that grow with the position.
std::vector<Typed> infer_rope(Infer& at) {
    at.expect_rank(0, 4, 4);
    if (at.shape(0)[3] % 2 != 0) at.fail(fmt::format("the last dim of {} must be even", at.show(0)));
    check_scaling(at);
    const double magnitude = at.attributes.number("magnitude", 1);
    if (!std::isfinite(magnitude) || magnitude <= 0)
        at.fail(fmt::format("magnitude = {} is not a factor of the output", magnitude), "give a number above 0");
    if (magnitude == 1) at.attributes.erase("magnitude");
    if (at.count() > 1) {
        if (at.attributes.has("start"))
            at.fail("both start and positions give the positions", "add the start to the positions, or leave it out");
        at.expect_rank(1, 2, 2);
        at.same_dim(0, 0, 1, 0, "batch dims");
        at.same_dim(0, 1, 1, 1, "dims of positions");
    }
    return like_input(at);
}

/// Every dim but the last may be split; positions are split like x.
FactorRule rope_rule(const Program& program, const Op& op) {
    const Shape& shape = shape_of(program, op.inputs[0]);
    RuleMaker make;
    FactorRule::Dims x;
    for (int d = 0; d < 3; ++d) x.push_back(make.parallel(shape[d]));
    x.push_back(make.whole(shape[3]));
    make.rule.inputs = {x};
    if (op.inputs.size() > 1) make.rule.inputs.push_back({x[0], x[1]});
    make.rule.outputs = {x};
    make.rule.linear_in = {0};
    return make.rule;
}

void grad_rope(Backward& g) {
    Attributes back = g.attributes();
    if (back.flag("inverse")) {
        back.erase("inverse");
    } else {
        back.set("inverse", true);
    }
    std::vector<ValueId> inputs{g.dy()};
    if (g.count() > 1) inputs.push_back(g.in(1));
    g.give(0, g.one("rope", std::move(inputs), back));
}

Samples rotations() {
    const Attributes yarn{{"theta", 100.0},
                          {"factor", 8.0},
                          {"beta_fast", 4.0},
                          {"beta_slow", 0.5},
                          {"truncate", true},
                          {"magnitude", 1.25},
                          {"original_positions", int64_t{64}}};
    Samples samples{{{f32({2, 9, 3, 6})}, {{"theta", 100.0}}},
                    {{f32({2, 9, 3, 6})}, {{"theta", 100.0}, {"inverse", true}, {"start", int64_t{7}}}},
                    {{f32({2, 9, 3, 6})}, {{"theta", 100.0}, {"factor", 4.0}}},
                    {{f32({2, 9, 3, 16})},
                     {{"theta", 100.0},
                      {"factor", 8.0},
                      {"low_freq_factor", 1.0},
                      {"high_freq_factor", 4.0},
                      {"original_positions", int64_t{64}}}},
                    {{f32({2, 9, 3, 16})}, yarn},
                    {{f32({2, 9, 3, 16}), i32({2, 9})}, yarn},
                    {{f32({2, 9, 3, 6}), i32({2, 9})}, {{"theta", 100.0}, {"inverse", true}}}};
    for (size_t i = samples.size() - 2; i < samples.size(); ++i) samples[i].draws = {{}, Draw{0, 50}};
    return samples;
}

/// Test samples of attention: two or three query heads per key/value head; one each; a single key/value head with more
/// keys than queries; windows of two keys and of one; values of another head dim; documents; positions in any order,
/// with a window and without; blocks, of keys that were rolled, with a window, and by index.
Samples attentions() {
    const auto sample = [](Shape q, Shape k, bool causal, int64_t window = 0) {
        return OpSample{{f32(std::move(q)), f32(k), f32(k)}, {{"causal", causal}, {"window", window}}};
    };
    Samples samples{sample({2, 9, 6, 3}, {2, 9, 2, 3}, true),    sample({2, 9, 6, 3}, {2, 9, 3, 3}, true),
                    sample({2, 9, 4, 3}, {2, 9, 4, 3}, true),    sample({2, 3, 4, 5}, {2, 7, 1, 5}, false),
                    sample({2, 9, 6, 3}, {2, 9, 2, 3}, true, 2), sample({2, 9, 4, 3}, {2, 9, 4, 3}, true, 1),
                    sample({2, 6, 4, 3}, {2, 6, 2, 3}, true)};
    samples.back().operands[2].shape[3] = 7;
    const auto indexed = [&](OpSample made, int64_t queries, int64_t keys, const Draw& documents, const Draw& position,
                             const Draw& key_position) {
        made.operands.insert(made.operands.end(),
                             {i32({2, queries}), i32({2, queries}), i32({2, keys}), i32({2, keys})});
        made.draws = {{}, {}, {}, documents, position, documents, key_position};
        samples.push_back(std::move(made));
    };
    // Each query sees a key: the gradient of lse is that of a finite number.
    const Draw two{0, 1}, one{0, 0};
    indexed(sample({2, 4, 4, 3}, {2, 9, 2, 3}, false), 4, 9, two, one, one);
    indexed(sample({2, 6, 4, 3}, {2, 7, 2, 3}, true), 6, 7, one, {4, 8}, {0, 8});
    indexed(sample({2, 6, 2, 3}, {2, 9, 2, 3}, true, 5), 6, 9, one, {5, 7}, {0, 7});
    const auto in_blocks = [](OpSample made, int64_t blocks, int64_t rolled) {
        made.attributes.set("blocks", blocks);
        made.attributes.set("rolled", rolled);
        // The queries of a block before its keys see none: their lse is -inf.
        made.derivative = rolled == 0;
        return made;
    };
    samples.push_back(in_blocks(sample({2, 12, 4, 3}, {2, 12, 2, 3}, true), 6, 0));
    samples.push_back(in_blocks(sample({2, 12, 4, 3}, {2, 12, 2, 3}, true), 3, 4));
    samples.push_back(in_blocks(sample({2, 12, 2, 3}, {2, 12, 2, 3}, true, 5), 2, 6));
    samples.push_back(in_blocks(sample({2, 4, 4, 3}, {2, 6, 4, 3}, false), 2, 0));
    indexed(in_blocks(sample({2, 6, 4, 3}, {2, 9, 2, 3}, true, 5), 3, 0), 6, 9, one, {5, 7}, {3, 7});
    return samples;
}

/// Those of attention, every second one with a gradient of lse.
Samples attention_gradients() {
    Samples samples = attentions();
    for (size_t i = 0; i < samples.size(); ++i) {
        auto& [operands, attributes, dims, draws, derivative] = samples[i];
        const TensorType q = operands[0], lse = f32({q.shape[0], q.shape[2], q.shape[1]});
        TensorType o = q;
        o.shape[3] = operands[2].shape[3];
        draws.resize(operands.size());
        operands.insert(operands.begin() + 3, {o, lse, o});
        draws.insert(draws.begin() + 3, {{}, Draw{1.5, 2.5}, {}});  // lse is a log of a sum of a few numbers near 1
        if (i % 2 == 0) operands.push_back(lse);
    }
    return samples;
}

}  // namespace

std::vector<OpDef> attention_ops() {
    const std::vector<AttributeDef> attributes{flag("causal"), number("scale"), integer("window"), integer("blocks"),
                                               integer("rolled")};
    return {
        {.name = "rope",
         .operands = {"x", "positions?"},
         .types = "f i? -> f",
         .attributes = {number("theta", 10000.0), flag("inverse"), integer("start"), number("factor"),
                        number("low_freq_factor"), number("high_freq_factor"), number("beta_fast"), number("beta_slow"),
                        flag("truncate"), integer("original_positions"), number("magnitude")},
         .infer = infer_rope,
         .rule = rope_rule,
         .gradient = grad_rope,
         .flops = some_flops,
         .in_place = {{0, 0}},
         .indexed = OperandRef{false, 0},
         .indexed_if = [](const Op& op) { return op.inputs.size() == 1; },
         .samples = rotations},
        {.name = "attention",
         .operands = {"q", "k", "v", "documents?", "positions??", "key_documents??", "key_positions??"},
         .types = "f f f i? i?? i?? i?? -> f s",
         .attributes = attributes,
         .infer = infer_attention,
         .rule = heads_rule,
         .gradient = grad_attention,
         .decompose = decompose_attention,
         .flops = attention_flops,
         .indexed = OperandRef{false, 0},
         .product = true,
         .work = Work::attention,
         .indexed_dim = 1,
         .indexed_if = needs_place,
         .stands_in = {{5, 3}, {6, 4}},
         .samples = attentions},
        {.name = "attention_grad",
         .operands = {"q", "k", "v", "o", "lse", "do", "documents?", "positions??", "key_documents??",
                      "key_positions??", "dlse?"},
         .types = "f f f f s f i? i?? i?? i?? s? -> f f f",
         .attributes = attributes,
         .infer = infer_attention_grad,
         .rule = heads_rule,
         .decompose = decompose_attention,
         .flops = attention_grad_flops,
         .indexed = OperandRef{false, 0},
         .work = Work::attention_gradient,
         .indexed_dim = 1,
         .indexed_if = needs_place,
         .samples = attention_gradients},
    };
}

}  // namespace orrery::ops
