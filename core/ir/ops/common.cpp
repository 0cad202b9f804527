#include "ir/ops/common.h"

#include <fmt/format.h>

#include <algorithm>

namespace orrery::ops {

Typed broadcast(const Infer& at, size_t from) {
    int rank = 0;
    for (size_t i = from; i < at.count(); ++i) rank = std::max(rank, at.rank(i));
    Typed result;
    result.type.dtype = at.dtype(from);
    result.type.shape.assign(rank, 1);
    result.dims.resize(rank);
    for (int back = 1; back <= rank; ++back) {
        const size_t d = rank - back;
        std::optional<size_t> owner;  // first operand in which the dim is not of size 1
        for (size_t i = from; i < at.count(); ++i) {
            if (at.rank(i) < back) continue;
            const int di = at.rank(i) - back;
            if (at.shape(i)[di] == 1) continue;
            if (owner) {
                const std::string name = at.same_dim(*owner, at.rank(*owner) - back, i, di, "dims");
                if (!name.empty()) result.dims[d] = name;
            } else {
                owner = i;
                result.type.shape[d] = at.shape(i)[di];
                result.dims[d] = at.dims(i)[di];
            }
        }
        for (size_t i = from; i < at.count() && !owner && result.dims[d].empty(); ++i) {  // every operand has size 1
            if (at.rank(i) >= back) result.dims[d] = at.dims(i)[at.rank(i) - back];
        }
    }
    return result;
}

Typed make_typed(DType dtype, Shape shape, std::vector<std::string> names) {
    Typed typed;
    typed.type.dtype = dtype;
    typed.type.shape = std::move(shape);
    typed.dims = std::move(names);
    return typed;
}

Typed shaped(Infer& at, DType dtype) {
    const Shape shape = at.attributes.integers("shape");
    for (int64_t size : shape) {
        if (size < 1) at.fail(fmt::format("shape = {}: every dim must be at least 1", text_of(shape)));
    }
    return {{dtype, shape}, std::vector<std::string>(shape.size())};
}

std::vector<Typed> like_input(Infer& at) { return {at.typed(0)}; }

namespace {
FactorRule::Dims broadcast_dims(const FactorRule::Dims& all, const Shape& shape) {
    FactorRule::Dims dims(shape.size());
    const size_t skip = all.size() - shape.size();
    for (size_t d = 0; d < shape.size(); ++d) {
        if (shape[d] != 1) dims[d] = all[skip + d];
    }
    return dims;
}
}  // namespace

FactorRule elementwise_rule(const Program& program, const Op& op) {
    RuleMaker make;
    FactorRule::Dims all;
    for (int64_t size : shape_of(program, op.outputs[0])) all.push_back(make.parallel(size));
    for (ValueId id : op.inputs) make.rule.inputs.push_back(broadcast_dims(all, shape_of(program, id)));
    for (ValueId id : op.outputs) make.rule.outputs.push_back(broadcast_dims(all, shape_of(program, id)));
    return make.rule;
}

FactorRule linear_rule(const Program& program, const Op& op) {
    FactorRule rule = elementwise_rule(program, op);
    rule.linear_in = {0};
    return rule;
}

FactorRule source_rule(const Program& program, const Op& op) { return elementwise_rule(program, op); }

FactorRule last_dim_whole_rule(const Program& program, const Op& op) {
    FactorRule rule = elementwise_rule(program, op);
    for (int factor : rule.outputs[0].back()) rule.factors[factor].kind = Factor::Kind::whole;
    return rule;
}

ValueId times_dy(Backward& g, ValueId slope, DType in) {
    const auto c = g.uniform();
    if (c && *c == 1) return slope;
    if (c) return g.one("scale", {slope}, {{"by", *c}});
    return g.one("mul", {g.cast(slope, in), g.cast(g.dy(), in)});
}

int64_t no_flops(const Program&, const Op&) { return 0; }
int64_t input_flops(const Program& program, const Op& op) { return program.value(op.inputs[0]).type.count(); }
int64_t one_flop(const Program& program, const Op& op) { return program.value(op.outputs[0]).type.count(); }
int64_t some_flops(const Program& program, const Op& op) { return 10 * program.value(op.outputs[0]).type.count(); }

}  // namespace orrery::ops
