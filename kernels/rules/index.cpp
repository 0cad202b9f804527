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

/// Sizes from y [.., experts, slots, cols] and slots [.., tokens, choices], which the ops' weights have, too.
Slots slots_of(const Request& r, const Operand& y, const Operand& x, size_t slots) {
    const Sizes &held = y.shape, &chosen = r.input(slots).shape;
    if (held.size() < 3 || chosen.size() + 1 != held.size()) r.refuse("y is [.., E, S, D], and slots are [.., T, k]");
    const size_t leading = chosen.size() - 2;
    Slots s{.tokens = chosen[leading],
            .choices = chosen[leading + 1],
            .experts = held[leading],
            .slots = held[leading + 1],
            .cols = held[leading + 2],
            .start = r.offset(leading)};
    for (size_t d = 0; d < leading; ++d) {
        if (held[d] != chosen[d]) r.refuse("leading dims of y and slots differ");
        s.groups *= held[d];
    }
    Sizes rows = chosen;
    rows.back() = s.cols;
    if (x.shape != rows) r.refuse("x is not [.., T, D]");
    return s;
}

bool has_weights(const Request& r, size_t slots) {
    if (r.spec.inputs.size() <= slots + 1) return false;
    if (r.input(slots + 1).shape != r.input(slots).shape) r.refuse("weights have another shape than slots");
    return true;
}

Launch assign_slots(const Request& r) {
    const Sizes& ids = r.input(0).shape;
    const bool weights = has_weights(r, 0);
    Slots s{.slots = r.spec.integer("slots")};
    if (ids.size() < 2 || s.slots < 1) r.refuse("ids are [.., T, k], and slots at least 1");
    Sizes load(ids.begin(), ids.end() - 2);
    for (const i64 size : load) s.groups *= size;
    load.push_back(s.experts = r.spec.integer("experts"));
    s.tokens = ids[ids.size() - 2], s.choices = ids.back();
    if (r.output(0).shape != ids || r.output(1).shape != load) r.refuse("slots are like ids, and load is [.., E]");
    return [f = r.target.kernels.assign_slots, s, weights](Context& c, Operands t) {
        const size_t y = weights ? 2 : 1;
        f(c, s, static_cast<const std::int32_t*>(t[0].data), weights ? in(t[1]) : In{},
          static_cast<std::int32_t*>(t[y].data), static_cast<std::int32_t*>(t[y + 1].data));
    };
}

Launch to_or_from_slots(const Request& r, const Slots& s, decltype(Kernels::dispatch) f) {
    return [f, s, weights = has_weights(r, 1)](Context& c, Operands t) {
        f(c, s, in(t[0]), static_cast<const std::int32_t*>(t[1].data), weights ? in(t[2]) : In{},
          out(t[weights ? 3 : 2]));
    };
}

Launch dispatch(const Request& r) {
    return to_or_from_slots(r, slots_of(r, r.output(0), r.input(0), 1), r.target.kernels.dispatch);
}

Launch combine(const Request& r) {
    return to_or_from_slots(r, slots_of(r, r.input(0), r.output(0), 1), r.target.kernels.combine);
}

Launch slot_dots(const Request& r) {
    if (r.output(0).shape != r.input(2).shape) r.refuse("the result has the shape of slots");
    return [f = r.target.kernels.slot_dots, s = slots_of(r, r.input(0), r.input(1), 2)](Context& c, Operands t) {
        f(c, s, in(t[0]), in(t[1]), static_cast<const std::int32_t*>(t[2].data), out(t[3]));
    };
}

constexpr KernelRule lines[] = {
    {"gather", gather},
    {"scatter_add", scatter_add, true},
    {"top_k", top_k, true},
    {"cumsum", cumsum},
    {"iota", iota},
    {"one_hot", one_hot},
    {"assign_slots", assign_slots, true},
    {"dispatch", dispatch, true},
    {"combine", combine},
    {"slot_dots", slot_dots},
};

}  // namespace

std::span<const KernelRule> index_rules() { return lines; }

}  // namespace orrery::kernels::rules
