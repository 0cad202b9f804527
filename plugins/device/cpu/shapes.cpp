#include <cstring>
#include <vector>

#include "resolve.h"

namespace orrery::cpu_device {

namespace {

using kernels::Context;
using Operands = std::span<const Tensor>;

size_t dim_of(const Request& r) {
    const auto rank = static_cast<int64_t>(r.input(0).shape.size());
    int64_t dim = r.spec.attributes.integer("dim");
    if (dim < 0) dim += rank;
    if (dim < 0 || dim >= rank) r.refuse("no such dim");
    return static_cast<size_t>(dim);
}

/// Reshape is an alias in a plan; a device that is asked all the same copies.
Launch copy(const Request& r) {
    if (r.input(0).bytes() != r.output(0).bytes()) r.refuse("the sizes differ");
    return [](Context&, Operands t) {
        if (t[0].data != t[1].data) std::memcpy(t[1].data, t[0].data, static_cast<size_t>(t[1].bytes()));
    };
}

Launch transpose(const Request& r) {
    const std::vector<int64_t> asked = r.spec.attributes.integers("perm");
    const std::vector<int> perm(asked.begin(), asked.end());
    uint32_t seen = 0;
    for (int64_t d : asked) seen |= d >= 0 && d < kernels::max_dims ? 1u << d : 0;
    if (perm.size() != r.input(0).shape.size() || seen + 1 != 1u << perm.size()) r.refuse("perm is no permutation");
    return [f = r.kernels.transpose, shape = r.input(0).shape, perm](Context& c, Operands t) {
        f(c, in(t[0]), shape, perm, out(t[1]));
    };
}

Launch slice(const Request& r) {
    const size_t dim = dim_of(r);
    const int64_t start = r.spec.attributes.integer("start");
    const int64_t size = r.spec.attributes.integer("size", r.output(0).shape.at(dim));
    if (start < 0 || size < 0 || start + size > r.input(0).shape[dim]) r.refuse("the slice is outside");
    return [f = r.kernels.slice, shape = r.input(0).shape, dim = static_cast<int>(dim), start, size](
               Context& c, Operands t) { f(c, in(t[0]), shape, dim, start, size, out(t[1])); };
}

Launch concat(const Request& r) {
    const size_t dim = dim_of(r);
    Shape sizes;
    for (const TensorType& type : r.spec.inputs) {
        if (type.shape.size() <= dim || type.dtype != r.output(0).dtype) r.refuse("inputs of different kinds");
        sizes.push_back(type.shape[dim]);
    }
    std::vector<kernels::In> inputs(sizes.size());  // here, since a launch allocates nothing
    return [f = r.kernels.concat, shape = r.output(0).shape, dim = static_cast<int>(dim), sizes, inputs](
               Context& c, Operands t) mutable {
        for (size_t i = 0; i < sizes.size(); ++i) inputs[i] = in(t[i]);
        f(c, inputs, shape, dim, sizes, out(t[sizes.size()]));
    };
}

Launch pad(const Request& r) {
    const size_t dim = dim_of(r);
    const int64_t before = r.spec.attributes.integer("before"), after = r.spec.attributes.integer("after");
    if (before < 0 || after < 0) r.refuse("cannot pad by less than nothing");
    return [f = r.kernels.pad, shape = r.input(0).shape, dim = static_cast<int>(dim), before, after](
               Context& c, Operands t) { f(c, in(t[0]), shape, dim, before, after, out(t[1])); };
}

constexpr Rule rules[] = {
    {"reshape", "* -> *", copy}, {"copy", "* -> *", copy},         {"transpose", "* -> *", transpose},
    {"slice", "* -> *", slice},  {"concat", "* ... -> *", concat}, {"pad", "* -> *", pad},
};

}  // namespace

std::span<const Rule> shape_rules() { return rules; }

}  // namespace orrery::cpu_device
