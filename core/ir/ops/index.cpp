// Ops with indices (ids) along one dim: gather, scatter_add, top_k, cumsum, iota, one_hot.
#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <limits>

#include "ir/ops/common.h"

namespace orrery::ops {

namespace {

// Whether ids select whole rows of an operand: sizes of ids after `dim` are all 1, those of the operand are not.
bool picks_rows(const Shape& of, const Shape& ids, int64_t dim) {
    const auto behind = static_cast<std::ptrdiff_t>(dim) + 1;
    const Shape sizes(ids.begin() + behind, ids.end()), all(of.begin() + behind, of.end());
    return sizes == Shape(sizes.size(), 1) && sizes != all;
}

// Checks that ids (input 1) match input 0 in all dims but `dim`. Returns the dim names of input 0, completed from ids.
std::vector<std::string> match_ids(Infer& at, int dim) {
    at.expect_rank(1, at.rank(0), at.rank(0));
    std::vector<std::string> names = at.dims(0);
    const bool rows = picks_rows(at.shape(0), at.shape(1), dim);
    for (int d = 0; d < at.rank(0); ++d) {
        if (d == dim || (rows && d > dim)) continue;
        names[d] = at.same_dim(0, d, 1, d, "dims");
    }
    return names;
}

void check_index_range(Infer& at, int64_t size) {
    if (size > std::numeric_limits<int32_t>::max())
        at.fail(fmt::format("a dim of {} elements is too large: its indices do not fit i32", size));
}

std::vector<Typed> infer_gather(Infer& at) {
    const int d = at.dim_attribute("dim", at.rank(0));
    Typed y{at.type(0), match_ids(at, d)};
    y.type.shape[d] = at.shape(1)[d];
    y.dims[d] = at.dims(1)[d];
    return {y};
}

std::vector<Typed> infer_scatter_add(Infer& at) {
    const int d = at.dim_attribute("dim", at.rank(0));
    Typed y{at.type(0), match_ids(at, d)};
    at.same_dim(0, d, 1, d, "dims");
    const int64_t size = at.attributes.integer("size");
    if (size < 1) at.fail(fmt::format("size = {} must be at least 1", size));
    check_index_range(at, size);
    y.type.dtype = at.dtype_attribute(at.dtype(0));
    y.type.shape[d] = size;
    y.dims[d].clear();
    return {y};
}

// The factors that all operands share: dims before and after `dim`. Ids that select whole rows have none after it.
struct IndexRule {
    RuleMaker make;
    FactorRule::Dims shared, ids;
    size_t dim;

    IndexRule(const Program& program, const Op& op) : dim(op.attributes.integer("dim")) {
        const Shape& x = shape_of(program, op.inputs[0]);
        const bool rows = picks_rows(x, shape_of(program, op.inputs[1]), op.attributes.integer("dim"));
        for (size_t d = 0; d < x.size(); ++d) {
            shared.push_back(d == dim ? std::vector<int>{} : make.parallel(x[d]));
            ids.push_back(rows && d > dim ? std::vector<int>{} : shared.back());
        }
    }
    static FactorRule::Dims with(FactorRule::Dims dims, size_t d, const std::vector<int>& factor) {
        dims[d] = factor;
        return dims;
    }
};

// The factor rule of gather. If x is split along `dim`, a shard gives zeros for elements that it lacks, and the sum is
// the result. That needs floats: an integer x must be whole along `dim`.
FactorRule gather_rule(const Program& program, const Op& op) {
    IndexRule at(program, op);
    const bool sums = is_float(program.value(op.inputs[0]).type.dtype);
    const int64_t size = shape_of(program, op.inputs[0])[at.dim];
    const auto from = at.make.dim(sums ? Factor::Kind::index : Factor::Kind::whole, size);
    const auto picks = at.make.parallel(shape_of(program, op.inputs[1])[at.dim]);
    at.make.rule.inputs = {IndexRule::with(at.shared, at.dim, from), IndexRule::with(at.ids, at.dim, picks)};
    at.make.rule.outputs = {IndexRule::with(at.shared, at.dim, picks)};
    if (sums) at.make.rule.linear_in = {0};
    return at.make.rule;
}

FactorRule scatter_add_rule(const Program& program, const Op& op) {
    IndexRule at(program, op);
    const auto picks = at.make.contracted(shape_of(program, op.inputs[1])[at.dim]);
    const auto to = at.make.dim(Factor::Kind::index, shape_of(program, op.outputs[0])[at.dim]);
    at.make.rule.inputs = {IndexRule::with(at.shared, at.dim, picks), IndexRule::with(at.ids, at.dim, picks)};
    at.make.rule.outputs = {IndexRule::with(at.shared, at.dim, to)};
    at.make.rule.linear_in = {0};
    return at.make.rule;
}

// Adds the gradient of output 0 at the positions `ids` of input 0. The gradient of a weight is f32.
void scatter_back(Backward& g, ValueId ids) {
    if (!g.wants(0)) return;
    const int64_t dim = g.attributes().integer("dim");
    Attributes attributes{{"dim", dim}, {"size", g.shape(g.in(0))[dim]}};
    if (g.is_weight(g.in(0))) attributes.set("dtype", std::string("f32"));
    g.give(0, g.one("scatter_add", {g.dy(), ids}, std::move(attributes)));
}

void grad_gather(Backward& g) { scatter_back(g, g.in(1)); }
void grad_top_k(Backward& g) { scatter_back(g, g.out(1)); }

void grad_scatter_add(Backward& g) {
    if (!g.wants(0)) return;
    const ValueId dy = g.cast(g.raw_dy(), g.type(g.in(0)).dtype);
    g.give(0, g.one("gather", {dy, g.in(1)}, {{"dim", g.attributes().integer("dim")}}));
}

std::vector<Typed> infer_top_k(Infer& at) {
    const size_t d = at.dim_attribute("dim", at.rank(0));
    const int64_t k = at.attributes.integer("k"), size = at.shape(0)[d];
    if (k < 1 || k > size)
        at.fail(fmt::format("k = {} is out of range: expected 1 to the {} elements of dim {} of {}", k, size,
                            at.dims(0)[d].empty() ? fmt::format("{}, counted from 0,", d) : at.dims(0)[d], at.show(0)));
    check_index_range(at, size);
    Typed values = at.typed(0);
    values.type.shape[d] = k;
    values.dims[d].clear();
    Typed ids = values;
    ids.type.dtype = DType::i32;
    return {values, ids};
}

// The factor rule of ops that read `dim` as a whole; all other dims may be split.
FactorRule whole_dim_rule(const Program& program, const Op& op) {
    const size_t whole = op.attributes.integer("dim");
    const Shape& x = shape_of(program, op.inputs[0]);
    RuleMaker make;
    FactorRule::Dims shared;
    for (size_t d = 0; d < x.size(); ++d) shared.push_back(d == whole ? std::vector<int>{} : make.parallel(x[d]));
    const auto dims_of = [&](ValueId id) {
        FactorRule::Dims dims = shared;
        dims[whole] = make.whole(shape_of(program, id)[whole]);
        return dims;
    };
    for (ValueId id : op.inputs) make.rule.inputs.push_back(dims_of(id));
    for (ValueId id : op.outputs) make.rule.outputs.push_back(dims_of(id));
    return make.rule;
}

std::vector<Rivals> other_picks(const Attributes& attributes, std::span<const Shape> operands, const Tensor& want,
                                const Tensor& have) {
    const int64_t dim = attributes.integer("dim"), size = operands[0][dim], k = want.shape[dim];
    const int64_t inner = count_of(Shape(want.shape.begin() + dim + 1, want.shape.end()));
    const auto *ids = static_cast<const int32_t*>(want.data), *others = static_cast<const int32_t*>(have.data);
    std::vector<Rivals> found;
    for (int64_t i = 0; i < want.count(); ++i) {
        const auto element = [&](int64_t id) { return (i / inner / k * size + id) * inner + i % inner; };
        if (others[i] < 0 || others[i] >= size) return {};
        if (ids[i] != others[i]) found.push_back({i, element(ids[i]), element(others[i])});
    }
    return found;
}

FactorRule cumsum_rule(const Program& program, const Op& op) {
    FactorRule rule = whole_dim_rule(program, op);
    rule.linear_in = {0};
    return rule;
}

std::vector<Typed> infer_cumsum(Infer& at) {
    at.dim_attribute("dim", at.rank(0));
    return like_input(at);
}

// cumsum: y_i sums all x_j with j <= i, so dx_j sums all dy_i with i >= j: a cumsum in reverse.
void grad_cumsum(Backward& g) {
    Attributes attributes = g.attributes();
    attributes.set("reverse", !g.attributes().flag("reverse"));
    g.give(0, g.one("cumsum", {g.dy()}, std::move(attributes)));
}

std::vector<Typed> infer_iota(Infer& at) {
    const Typed y = shaped(at, at.dtype_attribute(DType::i32));
    const int64_t rank = y.type.shape.size();
    const int64_t given = at.attributes.integer("dim"), dim = given < 0 ? given + rank : given;
    if (dim < 0 || dim >= rank)
        at.fail(fmt::format("dim = {} is not a dim of shape = {}", given, text_of(y.type.shape)));
    at.attributes.set("dim", dim);
    check_index_range(at, y.type.shape[dim]);
    return {y};
}

std::vector<Typed> infer_one_hot(Infer& at) {
    const int64_t size = at.attributes.integer("size");
    if (size < 1) at.fail(fmt::format("size = {} must be at least 1", size));
    check_index_range(at, size);
    Typed y = at.typed(0);
    y.type.dtype = at.dtype_attribute(DType::f32);
    y.type.shape.push_back(size);
    y.dims.emplace_back();
    return {y};
}

// The factor rule of one_hot. Columns may be split: each rank computes the block that starts at its offset.
FactorRule one_hot_rule(const Program& program, const Op& op) {
    RuleMaker make;
    FactorRule::Dims dims;
    for (int64_t size : shape_of(program, op.inputs[0])) dims.push_back(make.parallel(size));
    make.rule.inputs = {dims};
    dims.push_back(make.parallel(shape_of(program, op.outputs[0]).back()));
    make.rule.outputs = {dims};
    return make.rule;
}

// Test samples of gather. Ids are from -1 to 9; both ends are out of range and select nothing.
Samples gathers() {
    const Draw ids{-1, 9};
    return {{.operands = {f32({4, 9, 6}), i32({4, 3, 6})}, .attributes = {{"dim", int64_t{1}}}, .draws = {{}, ids}},
            {.operands = {f32({9, 4, 6}), i32({33, 1, 1})}, .attributes = {{"dim", int64_t{0}}}, .draws = {{}, ids}},
            {.operands = {f32({4, 9}), i32({4, 6})}, .attributes = {{"dim", int64_t{-1}}}, .draws = {{}, ids}},
            {.operands = {i32({4, 9}), i32({4, 6})}, .attributes = {{"dim", int64_t{1}}}, .draws = {ids, ids}}};
}
Samples scatters() {
    const Draw ids{-1, 9};
    const auto into_9 = [](int64_t dim) { return Attributes{{"dim", dim}, {"size", int64_t{9}}}; };
    return {{.operands = {f32({4, 33, 6}), i32({4, 33, 6})}, .attributes = into_9(1), .draws = {{}, ids}},
            {.operands = {f32({33, 4, 6}), i32({33, 1, 1})}, .attributes = into_9(0), .draws = {{}, ids}},
            {.operands = {f32({4, 6}), i32({4, 6})}, .attributes = into_9(-1), .draws = {{}, ids}}};
}
Samples largest() {
    return {{.operands = {f32({4, 33})}, .attributes = {{"k", int64_t{6}}}},
            {.operands = {f32({4, 9, 6})}, .attributes = {{"k", int64_t{2}}, {"dim", int64_t{1}}}},
            {.operands = {f32({9, 4})}, .attributes = {{"k", int64_t{9}}, {"dim", int64_t{0}}}}};
}
Samples scans() {
    return {{.operands = {f32({4, 33})}, .attributes = {{"dim", int64_t{-1}}}},
            {.operands = {f32({4, 9, 6})}, .attributes = {{"dim", int64_t{1}}, {"reverse", true}}},
            {.operands = {f32({9, 6})}, .attributes = {{"dim", int64_t{0}}, {"exclusive", true}}},
            {.operands = {f32({4, 9})}, .attributes = {{"dim", int64_t{1}}, {"exclusive", true}, {"reverse", true}}}};
}
Samples counts() {
    return {
        {.operands = {}, .attributes = {{"shape", Ints{4, 9, 6}}, {"dim", int64_t{1}}}},
        {.operands = {}, .attributes = {{"shape", Ints{4, 33}}, {"dim", int64_t{0}}, {"dtype", std::string("f32")}}}};
}
Samples hots() {
    const Draw ids{-1, 9};
    return {
        {.operands = {i32({4, 9})}, .attributes = {{"size", int64_t{9}}}, .draws = {ids}},
        {.operands = {i32({33})}, .attributes = {{"size", int64_t{6}}, {"dtype", std::string("i32")}}, .draws = {ids}}};
}

}  // namespace

std::vector<OpDef> index_ops() {
    return {
        {.name = "gather",
         .operands = {"x", "ids"},
         .types = "a i -> a",
         .attributes = {required(integer("dim"))},
         .infer = infer_gather,
         .rule = gather_rule,
         .gradient = grad_gather,
         .flops = no_flops,
         .indexed = OperandRef{false, 0},
         .looks_up = Lookup{1, {false, 0}, 0, true, "dim"},
         .samples = gathers},
        {.name = "scatter_add",
         .operands = {"x", "ids"},
         .types = "F i -> F",
         .attributes = {required(integer("dim")), required(integer("size")), text("dtype")},
         .infer = infer_scatter_add,
         .rule = scatter_add_rule,
         .gradient = grad_scatter_add,
         .flops = input_flops,
         .accumulates = {0},
         .indexed = OperandRef{true, 0},
         .looks_up = Lookup{1, {true, 0}, 0, true, "dim"},
         .samples = scatters},
        {.name = "top_k",
         .operands = {"x"},
         .types = "f -> f i",
         .attributes = {required(integer("k")), integer("dim", int64_t{-1})},
         .infer = infer_top_k,
         .rule = whole_dim_rule,
         .gradient = grad_top_k,
         .flops = input_flops,
         .choice = FloatChoice{1, {0, 0}, other_picks},
         .samples = largest},
        {.name = "cumsum",
         .operands = {"x"},
         .types = "f -> f",
         .attributes = {required(integer("dim")), flag("reverse"), flag("exclusive")},
         .infer = infer_cumsum,
         .rule = cumsum_rule,
         .gradient = grad_cumsum,
         .flops = input_flops,
         .in_place = {{0, 0}},
         .samples = scans},
        {.name = "iota",
         .types = "-> n",
         .attributes = {required(integers("shape")), integer("dim", int64_t{0}), text("dtype", {"i32", "f32"}, "i32")},
         .infer = infer_iota,
         .rule = source_rule,
         .flops = no_flops,
         .indexed = OperandRef{true, 0},
         .source = true,
         .samples = counts},
        {.name = "one_hot",
         .operands = {"ids"},
         .types = "i -> n",
         .attributes = {required(integer("size")), text("dtype", {"f32", "bf16", "f16", "i32"}, "f32")},
         .infer = infer_one_hot,
         .rule = one_hot_rule,
         .flops = no_flops,
         .indexed = OperandRef{true, 0},
         .looks_up = Lookup{0, {true, 0}, -1, true},
         .samples = hots},
    };
}

}  // namespace orrery::ops
