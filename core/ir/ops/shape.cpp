// Ops that move elements: reshape (an alias), transpose, slice, concat, pad, roll.
#include <fmt/format.h>

#include <numeric>

#include "ir/ops/common.h"
#include "ir/permutation.h"

namespace orrery::ops {

namespace {

// The output of reshape. One size of the new shape may be -1: it is computed from the others.
std::vector<Typed> infer_reshape(Infer& at) {
    Shape shape = at.attributes.integers("shape");
    int64_t known = 1;
    int open = none;
    for (size_t d = 0; d < shape.size(); ++d) {
        if (shape[d] == -1 && open == none) {
            open = d;
        } else if (shape[d] < 1) {
            at.fail(fmt::format("shape = {}: sizes must be at least 1, and one may be -1", text_of(shape)));
        } else if (__builtin_mul_overflow(known, shape[d], &known)) {
            at.fail(fmt::format("shape = {}: too large, the number of elements overflows 64 bits", text_of(shape)));
        }
    }
    const int64_t count = at.type(0).count();
    if (open != none && count % known == 0) shape[open] = count / known;
    if (count_of(shape) != count) {
        at.fail(fmt::format("{} has {} elements, {} has {}", at.show(0), count, text_of(shape),
                            open != none ? fmt::format("a multiple of {}", known) : fmt::format("{}", known)));
    }
    at.attributes.set("shape", shape);
    Typed y{{at.dtype(0), shape}, std::vector<std::string>(shape.size())};
    // Dims at the start and end that reshape does not change keep their names.
    const size_t least = std::min(shape.size(), at.shape(0).size());
    size_t front = 0;
    while (front < least && shape[front] == at.shape(0)[front]) {
        y.dims[front] = at.dims(0)[front];
        ++front;
    }
    for (size_t back = 1; back + front <= least; ++back) {
        const size_t to = shape.size() - back;
        const size_t from = at.shape(0).size() - back;
        if (shape[to] != at.shape(0)[from]) break;
        y.dims[to] = at.dims(0)[from];
    }
    return {y};
}

// Cuts the dims of a shape, major one first, into factors that another shape has too: [12,64] -> [768]: 12, then 64.
struct Cutter {
    const Shape& shape;
    FactorRule::Dims& dims;
    size_t at = 0;
    int64_t rest = 1;  // part of dim `at` - 1 that no factor has yet

    bool next() {
        while (rest == 1 && at < shape.size()) rest = shape[at++];
        return rest != 1;
    }
    void take(const std::vector<int>& factor, int64_t size) {
        auto& list = dims[at - 1];
        list.insert(list.end(), factor.begin(), factor.end());
        rest /= size;
    }
};

FactorRule reshape_rule(const Program& program, const Op& op) {
    const Shape& from = shape_of(program, op.inputs[0]);
    const Shape& to = shape_of(program, op.outputs[0]);
    RuleMaker make;
    make.rule.inputs.emplace_back(from.size());
    make.rule.outputs.emplace_back(to.size());
    make.rule.linear_in = {0};
    Cutter a{from, make.rule.inputs[0]};
    Cutter b{to, make.rule.outputs[0]};
    bool more_a = a.next();
    bool more_b = b.next();
    while (more_a && more_b) {
        const int64_t common = std::gcd(a.rest, b.rest);
        if (common == a.rest || common == b.rest) {
            const auto factor = make.parallel(common);
            a.take(factor, common);
            b.take(factor, common);
        } else {
            // No common boundary ([6,4] -> [8,3]): after the common factor, dims are whole until both shapes meet.
            if (common > 1) {
                const auto factor = make.parallel(common);
                a.take(factor, common);
                b.take(factor, common);
            }
            int64_t done_a = 1;
            int64_t done_b = 1;
            do {
                Cutter& side = done_a <= done_b ? a : b;
                int64_t& done = done_a <= done_b ? done_a : done_b;
                side.next();
                done *= side.rest;
                side.take(make.whole(side.rest), side.rest);
            } while (done_a != done_b);
        }
        more_a = a.next();
        more_b = b.next();
    }
    return make.rule;
}

void grad_reshape(Backward& g) {
    if (const auto c = g.uniform()) return g.give_uniform(0, *c);
    g.give(0, g.reshape_like(g.raw_dy(), g.in(0)));
}

std::vector<int64_t> permutation(Infer& at) {
    std::vector<int64_t> perm = at.attributes.integers("perm");
    std::vector<char> seen(at.shape(0).size(), 0);
    bool good = perm.size() == seen.size();
    for (int64_t& d : perm) {
        if (d < 0) d += at.rank(0);
        good = good && d >= 0 && d < at.rank(0) && !seen[d];
        if (good) seen[d] = 1;
    }
    if (!good)
        at.fail(
            fmt::format("perm = {} is not a permutation of the {} dims of {}", text_of(perm), at.rank(0), at.show(0)));
    at.attributes.set("perm", perm);
    return perm;
}

std::vector<Typed> infer_transpose(Infer& at) {
    Typed y{{at.dtype(0), {}}, {}};
    for (int64_t d : permutation(at)) {
        y.type.shape.push_back(at.shape(0)[d]);
        y.dims.push_back(at.dims(0)[d]);
    }
    return {y};
}

FactorRule transpose_rule(const Program& program, const Op& op) {
    RuleMaker make;
    FactorRule::Dims in;
    FactorRule::Dims out;
    for (int64_t size : shape_of(program, op.inputs[0])) in.push_back(make.parallel(size));
    for (int64_t d : op.attributes.integers("perm")) out.push_back(in[d]);
    make.rule.inputs = {in};
    make.rule.outputs = {out};
    make.rule.linear_in = {0};
    return make.rule;
}

void grad_transpose(Backward& g) {
    if (const auto c = g.uniform()) return g.give_uniform(0, *c);
    g.give(0, g.one("transpose", {g.raw_dy()}, {{"perm", inverse(g.attributes().integers("perm"))}}));
}

std::vector<Typed> infer_slice(Infer& at) {
    const size_t d = at.dim_attribute("dim", at.rank(0));
    const int64_t start = at.attributes.integer("start");
    const int64_t size = at.attributes.integer("size");
    if (start < 0 || size < 1 || start + size > at.shape(0)[d]) {
        at.fail(fmt::format("start = {}, size = {}: out of range of the {} elements of dim {} of {}", start, size,
                            at.shape(0)[d],
                            at.dims(0)[d].empty() ? fmt::format("{}, counted from 0,", d) : at.dims(0)[d], at.show(0)));
    }
    Typed y = at.typed(0);
    y.type.shape[d] = size;
    return {y};
}

// The factor rule of ops that cut or join a dim, which must be whole, as its size differs between operands.
FactorRule cut_rule(const Program& program, const Op& op) {
    const size_t cut = op.attributes.integer("dim");
    RuleMaker make;
    FactorRule::Dims common;
    const Shape& y = shape_of(program, op.outputs[0]);
    for (size_t d = 0; d < y.size(); ++d) common.push_back(d == cut ? std::vector<int>{} : make.parallel(y[d]));
    auto dims_of = [&](ValueId id) {
        FactorRule::Dims dims = common;
        dims[cut] = make.whole(shape_of(program, id)[cut]);
        return dims;
    };
    for (ValueId id : op.inputs) make.rule.inputs.push_back(dims_of(id));
    make.rule.outputs.push_back(dims_of(op.outputs[0]));
    for (size_t i = 0; i < op.inputs.size(); ++i) make.rule.linear_in.push_back(i);
    return make.rule;
}

void grad_slice(Backward& g) {
    g.give_piece(0, static_cast<int>(g.attributes().integer("dim")), g.attributes().integer("start"), g.raw_dy());
}

std::vector<Typed> infer_concat(Infer& at) {
    const int cut = at.dim_attribute("dim", at.rank(0));
    Typed y = at.typed(0);
    for (size_t i = 1; i < at.count(); ++i) {
        at.expect_rank(i, at.rank(0), at.rank(0));
        for (int d = 0; d < at.rank(0); ++d) {
            if (d == cut) {
                y.type.shape[d] += at.shape(i)[d];
                if (y.dims[d] != at.dims(i)[d]) y.dims[d].clear();
            } else if (const std::string name = at.same_dim(0, d, i, d, "dims"); !name.empty()) {
                y.dims[d] = name;
            }
        }
    }
    return {y};
}

void grad_concat(Backward& g) {
    const int64_t dim = g.attributes().integer("dim");
    if (const auto c = g.uniform()) {
        for (size_t i = 0; i < g.count(); ++i) g.give_uniform(i, *c);
        return;
    }
    const ValueId dy = g.raw_dy();
    int64_t start = 0;
    for (size_t i = 0; i < g.count(); ++i) {
        const int64_t size = g.shape(g.in(i))[dim];
        if (g.wants(i)) g.give(i, g.one("slice", {dy}, {{"dim", dim}, {"start", start}, {"size", size}}));
        start += size;
    }
}

std::vector<Typed> infer_pad(Infer& at) {
    const size_t d = at.dim_attribute("dim", at.rank(0));
    const int64_t before = at.attributes.integer("before");
    const int64_t after = at.attributes.integer("after");
    if (before < 0 || after < 0) at.fail(fmt::format("before = {} and after = {} must not be negative", before, after));
    Typed y = at.typed(0);
    y.type.shape[d] += before + after;
    return {y};
}

void grad_pad(Backward& g) {
    if (const auto c = g.uniform()) return g.give_uniform(0, *c);
    const int64_t dim = g.attributes().integer("dim");
    g.give(0, g.one("slice", {g.raw_dy()},
                    {{"dim", dim}, {"start", g.attributes().integer("before")}, {"size", g.shape(g.in(0))[dim]}}));
}

// y[i] = x[i - by] along a dim, around the end. `by` is stored as 0 to size - 1.
std::vector<Typed> infer_roll(Infer& at) {
    const int64_t size = at.shape(0)[at.dim_attribute("dim", at.rank(0))];
    const int64_t by = at.attributes.integer("by") % size;
    at.attributes.set("by", by < 0 ? by + size : by);
    return {at.typed(0)};
}

FactorRule roll_rule(const Program& program, const Op& op) {
    const size_t rolled = op.attributes.integer("dim");
    const int64_t by = op.attributes.integer("by");
    const Shape& shape = shape_of(program, op.inputs[0]);
    RuleMaker make;
    FactorRule::Dims dims;
    for (size_t d = 0; d < shape.size(); ++d) {
        const bool turns = d == rolled && by != 0;
        dims.push_back(turns ? make.whole(shape[d]) : make.parallel(shape[d]));
        if (turns) make.rule.factors.back().turn = by;
    }
    make.rule.inputs = make.rule.outputs = {dims};
    make.rule.linear_in = {0};
    return make.rule;
}

void grad_roll(Backward& g) {
    if (const auto c = g.uniform()) return g.give_uniform(0, *c);
    const int64_t dim = g.attributes().integer("dim");
    g.give(0, g.one("roll", {g.raw_dy()}, {{"dim", dim}, {"by", -g.attributes().integer("by")}}));
}

Samples reshapes() {
    return {{{f32({4, 6})}, {{"shape", Ints{2, -1, 6}}}},
            {{f32({4, 9, 2})}, {{"shape", Ints{36, 2}}}},
            {{f32({4, 6})}, {{"shape", Ints{6, 4}}}},
            {{f32({6, 4})}, {{"shape", Ints{8, 3}}}}};
}
Samples transposes() {
    return {{{f32({4, 6, 9})}, {{"perm", Ints{2, 0, 1}}}},
            {{f32({4, 33})}, {{"perm", Ints{1, 0}}}},
            {{i32({2, 4, 9, 6})}, {{"perm", Ints{0, 2, 1, 3}}}}};
}
Samples slices() {
    return {{{f32({4, 9})}, {{"dim", int64_t{1}}, {"start", int64_t{2}}, {"size", int64_t{5}}}},
            {{f32({7, 33})}, {{"dim", int64_t{-2}}, {"start", int64_t{3}}, {"size", int64_t{4}}}}};
}
Samples concats() {
    return {{{f32({4, 2}), f32({4, 1}), f32({4, 5})}, {{"dim", int64_t{-1}}}},
            {{f32({5, 9}), f32({2, 9})}, {{"dim", int64_t{0}}}}};
}
Samples pads() {
    return {{{f32({5, 9})}, {{"dim", int64_t{0}}, {"before", int64_t{1}}, {"after", int64_t{2}}}},
            {{f32({4, 9})}, {{"dim", int64_t{1}}, {"before", int64_t{0}}, {"after", int64_t{3}}}}};
}
Samples rolls() {
    return {{{f32({4, 9})}, {{"dim", int64_t{1}}, {"by", int64_t{3}}}},
            {{f32({6, 4})}, {{"dim", int64_t{0}}, {"by", int64_t{-3}}}},
            {{f32({2, 6, 33})}, {{"dim", int64_t{-2}}, {"by", int64_t{5}}}},
            {{i32({9, 2})}, {{"dim", int64_t{0}}, {"by", int64_t{6}}}}};
}

}  // namespace

std::vector<OpDef> shape_ops() {
    return {
        {.name = "reshape",
         .operands = {"x"},
         .types = "a -> a",
         .attributes = {required(integers("shape"))},
         .infer = infer_reshape,
         .rule = reshape_rule,
         .gradient = grad_reshape,
         .flops = no_flops,
         .in_place = {{0, 0}},
         .alias = true,
         .moves = Moves::renames,
         .multiplies = {0},
         .samples = reshapes},
        {.name = "transpose",
         .operands = {"x"},
         .types = "a -> a",
         .attributes = {required(integers("perm"))},
         .infer = infer_transpose,
         .rule = transpose_rule,
         .gradient = grad_transpose,
         .flops = no_flops,
         .moves = Moves::permutes,
         .multiplies = {0},
         .samples = transposes},
        {.name = "slice",
         .operands = {"x"},
         .types = "a -> a",
         .attributes = {required(integer("dim")), required(integer("start")), required(integer("size"))},
         .infer = infer_slice,
         .rule = cut_rule,
         .gradient = grad_slice,
         .flops = no_flops,
         .moves = Moves::cuts,
         .samples = slices},
        {.name = "concat",
         .operands = {"x..."},
         .types = "a... -> a",
         .attributes = {required(integer("dim"))},
         .infer = infer_concat,
         .rule = cut_rule,
         .gradient = grad_concat,
         .flops = no_flops,
         .moves = Moves::joins,
         .samples = concats},
        {.name = "pad",
         .operands = {"x"},
         .types = "a -> a",
         .attributes = {required(integer("dim")), integer("before", int64_t{0}), integer("after", int64_t{0})},
         .infer = infer_pad,
         .rule = cut_rule,
         .gradient = grad_pad,
         .flops = no_flops,
         .samples = pads},
        {.name = "roll",
         .operands = {"x"},
         .types = "a -> a",
         .attributes = {required(integer("dim")), required(integer("by"))},
         .infer = infer_roll,
         .rule = roll_rule,
         .gradient = grad_roll,
         .flops = no_flops,
         .moves = Moves::rolls,
         .multiplies = {0},
         .samples = rolls},
    };
}

}  // namespace orrery::ops
