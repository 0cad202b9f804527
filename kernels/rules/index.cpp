#include <algorithm>

#include "kernels/rules/rules.h"

namespace orrery::kernels::rules {

namespace {

/// A shape split at one of its dims.
Along around(const Sizes& shape, size_t dim) {
    Along a{.outer = 1, .size = shape[dim], .inner = 1};
    for (size_t d = 0; d < dim; ++d) a.outer *= shape[d];
    for (size_t d = dim + 1; d < shape.size(); ++d) a.inner *= shape[d];
    return a;
}

bool equal_but(const Sizes& a, const Sizes& b, size_t dim) {
    Sizes like = a;
    if (a.size() == b.size()) like[dim] = b[dim];
    return like == b;
}

/// held [.., size, ..] and picked [.., picks, ..], by ids with the shape of picked, or with 1 in all dims after `dim`.
Picks picks(const Request& r, const Operand& held, const Operand& picked) {
    const Sizes &from = held.shape, &to = picked.shape, &ids = r.input(1).shape;
    const size_t dim = r.dim(from.size());
    if (!equal_but(from, to, dim)) r.refuse("input and output may differ only in the dim of the indices");
    Sizes rows = to;
    std::fill(rows.begin() + static_cast<std::ptrdiff_t>(dim) + 1, rows.end(), 1);
    if (ids != to && ids != rows) r.refuse("ids have another shape than what they pick, and than its rows");
    Picks s;
    s.x = around(from, dim);
    s.picks = to[dim];
    s.start = r.offset(dim);
    s.rows = ids != to;
    s.accumulate = r.accumulate();
    return s;
}

Launch gather(const Request& r) {
    return [f = r.target.kernels.gather, s = picks(r, r.input(0), r.output(0))](Context& c, Operands t) {
        f(c, s, in(t[0]), static_cast<const std::int32_t*>(t[1].data), out(t[2]));
    };
}

Launch scatter_add(const Request& r) {
    return [f = r.target.kernels.scatter_add, s = picks(r, r.output(0), r.input(0))](Context& c, Operands t) {
        f(c, s, in(t[0]), static_cast<const std::int32_t*>(t[1].data), out(t[2]));
    };
}

Launch top_k(const Request& r) {
    const Sizes &x = r.input(0).shape, &y = r.output(0).shape;
    const size_t dim = r.dim(x.size());
    if (y != r.output(1).shape || !equal_but(x, y, dim))
        r.refuse("values and ids must have the shape of x except in dim");
    const i64 k = y[dim];
    if (k < 1 || k > x[dim]) r.refuse("no " + std::to_string(k) + " elements to choose");
    return [f = r.target.kernels.top_k, s = around(x, dim), k](Context& c, Operands t) {
        f(c, s, k, in(t[0]), out(t[1]), static_cast<std::int32_t*>(t[2].data));
    };
}

Launch cumsum(const Request& r) {
    if (r.input(0).shape != r.output(0).shape) r.refuse("x and y have one shape");
    return [f = r.target.kernels.cumsum, s = around(r.input(0).shape, r.dim(r.input(0).shape.size())),
            reverse = r.spec.flag("reverse"), exclusive = r.spec.flag("exclusive")](Context& c, Operands t) {
        f(c, s, reverse, exclusive, in(t[0]), out(t[1]));
    };
}

Launch iota(const Request& r) {
    const Sizes& y = r.output(0).shape;
    const size_t dim = r.dim(y.size());
    return [f = r.target.kernels.iota, s = around(y, dim), start = r.offset(dim)](Context& c, Operands t) {
        f(c, s, start, out(t[0]));
    };
}

Launch one_hot(const Request& r) {
    const Operand& y = r.output(0);
    if (y.shape.empty() || r.input(0).count() != y.rows()) r.refuse("y has a row for each id");
    return
        [f = r.target.kernels.one_hot, n = y.rows(), start = r.offset(y.shape.size() - 1), cols = y.cols()](
            Context& c, Operands t) { f(c, static_cast<const std::int32_t*>(t[0].data), n, start, cols, out(t[1])); };
}

constexpr KernelRule lines[] = {
    {"gather", gather},     {"scatter_add", scatter_add, true},
    {"top_k", top_k, true}, {"cumsum", cumsum},
    {"iota", iota},         {"one_hot", one_hot},
};

}  // namespace

std::span<const KernelRule> index_rules() { return lines; }

}  // namespace orrery::kernels::rules
