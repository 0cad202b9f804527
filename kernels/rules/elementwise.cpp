#include <algorithm>
#include <cassert>
#include <iterator>

#include "kernels/rules/rules.h"

namespace orrery::kernels::rules {

namespace {

/// The enumerator of the spec's op.
template <class Enum, size_t n>
Enum asked(const Request& r, const NamedOp<Enum> (&ops)[n]) {
    const auto found =
        std::find_if(std::begin(ops), std::end(ops), [&](const auto& one) { return one.op == r.spec.op; });
    assert(found != std::end(ops));  // the rules below are made from `ops`
    return found->does;
}

Launch unary(const Request& r, Unary op) {
    return [f = r.target.kernels.unary, op, n = r.output(0).count()](Context& c, Operands t) {
        f(c, op, in(t[0]), out(t[1]), n);
    };
}

Launch unary(const Request& r) { return unary(r, asked(r, unary_ops)); }
Launch gelu(const Request& r) { return unary(r, r.erf() ? Unary::gelu_erf : Unary::gelu_tanh); }

Launch unary_grad(const Request& r, UnaryGrad op) {
    return [f = r.target.kernels.unary_grad, op, n = r.output(0).count()](Context& c, Operands t) {
        f(c, op, in(t[0]), in(t[1]), out(t[2]), n);
    };
}

Launch unary_grad(const Request& r) { return unary_grad(r, asked(r, unary_grad_ops)); }
Launch gelu_grad(const Request& r) { return unary_grad(r, r.erf() ? UnaryGrad::gelu_erf : UnaryGrad::gelu_tanh); }

Launch binary(const Request& r) {
    return [f = r.target.kernels.binary, op = asked(r, binary_ops), a = r.input(0).shape, b = r.input(1).shape](
               Context& c, Operands t) { f(c, op, in(t[0]), a, in(t[1]), b, out(t[2])); };
}

Launch compare(const Request& r) {
    return [f = r.target.kernels.compare, op = asked(r, compare_ops), a = r.input(0).shape, b = r.input(1).shape](
               Context& c, Operands t) { f(c, op, in(t[0]), a, in(t[1]), b, out(t[2])); };
}

Launch select(const Request& r) {
    return [f = r.target.kernels.select, p = r.input(0).shape, a = r.input(1).shape, b = r.input(2).shape](
               Context& c, Operands t) { f(c, in(t[0]), p, in(t[1]), a, in(t[2]), b, out(t[3])); };
}

Launch scale(const Request& r) {
    return [f = r.target.kernels.scale, n = r.output(0).count(), by = r.spec.number("by", 1)](Context& c, Operands t) {
        f(c, in(t[0]), out(t[1]), n, by);
    };
}

Launch cast(const Request& r) {
    if (r.input(0).moved_only || r.output(0).moved_only)
        r.refuse("i64, u16 and 8-bit floats are moved only, never converted");
    return
        [f = r.target.kernels.cast, n = r.output(0).count()](Context& c, Operands t) { f(c, in(t[0]), out(t[1]), n); };
}

Launch swiglu(const Request& r) {
    return [f = r.target.kernels.swiglu, n = r.output(0).count()](Context& c, Operands t) {
        f(c, in(t[0]), in(t[1]), out(t[2]), n);
    };
}

Launch swiglu_grad(const Request& r) {
    return [f = r.target.kernels.swiglu_grad, n = r.output(0).count()](Context& c, Operands t) {
        f(c, in(t[0]), in(t[1]), in(t[2]), out(t[3]), out(t[4]), n);
    };
}

Launch full(const Request& r) {
    if (r.output(0).moved_only && r.spec.number("value", 0) != 0)
        r.refuse("i64, u16 and 8-bit floats are moved only, never computed");
    return [f = r.target.kernels.full, n = r.output(0).count(), value = r.spec.number("value", 0)](
               Context& c, Operands t) { f(c, out(t[0]), n, value); };
}

/// Owns the shapes that a Region points to. `by`: the number of the operand `places`, if the op has it.
struct Place {
    Sizes local, global, offset;
    size_t by = 0;

    Place(const Request& r, const Operand& type, size_t places)
        : local(type.shape), global(r.spec.integers("global_shape")), offset(r.spec.integers("offset")) {
        if (r.spec.inputs.size() > places) by = places;
        if (by > 0 && global.empty()) global = local;
        if (global.empty()) return;
        offset.resize(local.size(), 0);
        if (global.size() != local.size()) r.refuse("global_shape has another number of dims");
    }
    Region region(Operands t) const {
        return {local, global, offset, by > 0 ? static_cast<const std::int32_t*>(t[by].data) : nullptr};
    }
};

Launch random(const Request& r) {
    const std::string kind = r.spec.text("kind", "normal");
    if (kind != "normal" && kind != "uniform") {
        r.refuse("kind is \"normal\" or \"uniform\", found \"" + kind + "\"");
    }
    return [f = r.target.kernels.random, place = Place(r, r.output(0), 1), scale = r.spec.number("scale", 1),
            draw = kind == "normal" ? Draw::normal : Draw::uniform, y = r.out(),
            stream = static_cast<std::uint64_t>(r.spec.integer("stream"))](Context& c, Operands t) {
        f(c, out(t[y]), place.region(t), draw, scale, stream, static_cast<const uint32_t*>(t[0].data));
    };
}

Launch dropout(const Request& r) {
    const double p = r.spec.number("p", 0);
    if (!(p >= 0 && p < 1)) r.refuse("p must be in [0, 1), found " + std::to_string(p));
    return [f = r.target.kernels.dropout, place = Place(r, r.input(0), 2), p, y = r.out(),
            stream = static_cast<std::uint64_t>(r.spec.integer("stream"))](Context& c, Operands t) {
        f(c, in(t[0]), out(t[y]), place.region(t), p, stream, static_cast<const uint32_t*>(t[1].data));
    };
}

std::vector<KernelRule> all_lines() {
    std::vector<KernelRule> lines{
        {"full", full},           {"random", random}, {"dropout", dropout},         {"gelu", gelu},
        {"gelu_grad", gelu_grad}, {"swiglu", swiglu}, {"swiglu_grad", swiglu_grad}, {"scale", scale},
        {"cast", cast},           {"select", select},
    };
    for (const auto& one : unary_ops) lines.push_back({one.op, unary});
    for (const auto& one : unary_grad_ops) lines.push_back({one.op, unary_grad});
    for (const auto& one : binary_ops) lines.push_back({one.op, binary});
    for (const auto& one : compare_ops) lines.push_back({one.op, compare});
    return lines;
}

}  // namespace

std::span<const KernelRule> elementwise_rules() {
    static const std::vector<KernelRule> lines = all_lines();
    return lines;
}

}  // namespace orrery::kernels::rules
