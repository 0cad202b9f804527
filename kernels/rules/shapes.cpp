#include <vector>

#include "kernels/rules/rules.h"

namespace orrery::kernels::rules {

namespace {

/// Reshape is an alias in a plan; a device that runs it anyway copies.
Launch reshape(const Request& r) {
    if (r.input(0).count() != r.output(0).count()) r.refuse("the sizes differ");
    return [copy = r.target.copy](Context& c, Operands t) {
        if (t[0].data != t[1].data) copy(c, t[0].data, t[1].data, t[1].bytes);
    };
}

Launch transpose(const Request& r) {
    const std::vector<i64> asked = r.spec.integers("perm");
    const std::vector<int> perm(asked.begin(), asked.end());
    uint32_t seen = 0;
    for (i64 d : asked) seen |= d >= 0 && d < max_dims ? 1u << d : 0;
    if (perm.size() != r.input(0).shape.size() || seen + 1 != 1u << perm.size()) r.refuse("perm is not a permutation");
    return [f = r.target.kernels.transpose, shape = r.input(0).shape, perm](Context& c, Operands t) {
        f(c, in(t[0]), shape, perm, out(t[1]));
    };
}

Launch slice(const Request& r) {
    const size_t dim = r.dim(r.input(0).shape.size());
    const i64 start = r.spec.integer("start");
    const i64 size = r.spec.integer("size", r.output(0).shape.at(dim));
    if (start < 0 || size < 0 || start + size > r.input(0).shape[dim]) r.refuse("the slice is out of range");
    return [f = r.target.kernels.slice, shape = r.input(0).shape, dim = static_cast<int>(dim), start, size](
               Context& c, Operands t) { f(c, in(t[0]), shape, dim, start, size, out(t[1])); };
}

Launch concat(const Request& r) {
    const size_t dim = r.dim(r.input(0).shape.size());
    Sizes sizes;
    for (const Operand& type : r.spec.inputs) {
        if (type.shape.size() != r.input(0).shape.size()) r.refuse("inputs of different ranks");
        sizes.push_back(type.shape[dim]);
    }
    std::vector<In> inputs(sizes.size());  // made here, because a launch may not allocate
    return [f = r.target.kernels.concat, shape = r.output(0).shape, dim = static_cast<int>(dim), sizes, inputs](
               Context& c, Operands t) mutable {
        for (size_t i = 0; i < sizes.size(); ++i) inputs[i] = in(t[i]);
        f(c, inputs, shape, dim, sizes, out(t[sizes.size()]));
    };
}

Launch pad(const Request& r) {
    const size_t dim = r.dim(r.input(0).shape.size());
    const i64 before = r.spec.integer("before"), after = r.spec.integer("after");
    if (before < 0 || after < 0) r.refuse("the padding is negative");
    return [f = r.target.kernels.pad, shape = r.input(0).shape, dim = static_cast<int>(dim), before, after](
               Context& c, Operands t) { f(c, in(t[0]), shape, dim, before, after, out(t[1])); };
}

Launch roll(const Request& r) {
    const Sizes& shape = r.input(0).shape;
    const size_t dim = r.dim(shape.size());
    const i64 by = r.spec.integer("by");
    if (by < 0 || by >= shape[dim]) r.refuse("by must be from 0 to the size of the dim - 1");
    return [f = r.target.kernels.roll, shape, dim = static_cast<int>(dim), by](Context& c, Operands t) {
        f(c, in(t[0]), shape, dim, by, out(t[1]));
    };
}

constexpr KernelRule lines[] = {
    {"reshape", reshape}, {"transpose", transpose}, {"slice", slice}, {"concat", concat}, {"pad", pad}, {"roll", roll},
};

}  // namespace

std::span<const KernelRule> shape_rules() { return lines; }

}  // namespace orrery::kernels::rules
