#include "ir_programs.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>

#include "ir/describe.h"

namespace orrery::test {

namespace {

Origin at(int line) { return {"", "model.lua", line, 0}; }

Attributes normal(double scale) { return {{"kind", std::string("normal")}, {"scale", scale}}; }

}  // namespace

Program mlp(int64_t batch, int64_t embed, int64_t hidden) {
    Program p;
    p.name = "mlp";
    Builder b(p);
    const ValueId x = b.input("x", {DType::f32, {batch, embed}}, {"batch", "embed"}, at(1));
    const ValueId y = b.input("y", {DType::f32, {batch, embed}}, {"batch", "embed"}, at(2));
    const ValueId up = b.param("up.w", {DType::f32, {embed, hidden}}, {"embed", "mlp"}, normal(0.02), at(3));
    const ValueId bias = b.param("up.b", {DType::f32, {hidden}}, {"mlp"}, {{"kind", std::string("zeros")}}, at(4));
    const ValueId down = b.param("down.w", {DType::f32, {hidden, embed}}, {"mlp", "embed"}, normal(0.02), at(5));
    b.push_scope("layers");
    b.push_scope("0");
    const ValueId h = b.one("relu", {b.one("matmul", {x, up, bias}, {}, at(6))}, {}, at(7));
    const ValueId out = b.one("matmul", {h, down}, {}, at(8));
    b.pop_scope();
    b.pop_scope();
    const ValueId loss = b.one("sumsq", {b.one("sub", {out, y}, {}, at(9))}, {}, at(10));
    b.result("loss_sum", loss, at(10));
    return p;
}

namespace {

struct Decoder {
    const DecoderShape& s;
    Builder& b;
    ValueId x;

    ValueId weight(const std::string& name, Shape shape, std::vector<std::string> dims) {
        return b.param(name, {DType::f32, std::move(shape)}, std::move(dims), normal(0.02), at(20));
    }
    ValueId norm(const std::string& name) {
        const ValueId gain = b.param(name, {DType::f32, {s.embed}}, {"embed"}, {{"kind", std::string("ones")}}, at(21));
        return b.add("rmsnorm", {x, gain}, {}, at(22))[0];
    }
    ValueId project(ValueId from, const std::string& name, const std::string& dim, int64_t heads) {
        const int64_t head_dim = s.embed / s.heads;
        const ValueId w = weight(name, {s.embed, heads * head_dim}, {"embed", dim});
        const ValueId y = b.one("matmul", {from, w}, {}, at(23));
        return b.one("reshape", {y}, {{"shape", Shape{s.batch, s.seq, heads, head_dim}}}, at(24),
                     {{"batch", "seq", dim, "head_dim"}});
    }
    void attention(const std::string& scope) {
        const ValueId h = norm(scope + ".attn_norm");
        const ValueId q = b.one("rope", {project(h, scope + ".q", "heads", s.heads)}, {}, at(25));
        const ValueId k = b.one("rope", {project(h, scope + ".k", "kv_heads", s.kv_heads)}, {}, at(25));
        const ValueId v = project(h, scope + ".v", "kv_heads", s.kv_heads);
        const ValueId o = b.add("attention", {q, k, v}, {{"causal", true}}, at(26))[0];
        const ValueId merged =
            b.one("reshape", {o}, {{"shape", Shape{s.batch, s.seq, s.embed}}}, at(27), {{"batch", "seq", "heads"}});
        const ValueId w = weight(scope + ".o", {s.embed, s.embed}, {"heads", "embed"});
        x = b.one("add", {x, b.one("matmul", {merged, w}, {}, at(28))}, {}, at(28));
    }
    void feed_forward(const std::string& scope) {
        const ValueId h = norm(scope + ".mlp_norm");
        const ValueId gate =
            b.one("matmul", {h, weight(scope + ".gate", {s.embed, s.mlp}, {"embed", "mlp"})}, {}, at(29));
        const ValueId up = b.one("matmul", {h, weight(scope + ".up", {s.embed, s.mlp}, {"embed", "mlp"})}, {}, at(30));
        const ValueId inner = b.one("swiglu", {gate, up}, {}, at(31));
        const ValueId down = weight(scope + ".down", {s.mlp, s.embed}, {"mlp", "embed"});
        x = b.one("add", {x, b.one("matmul", {inner, down}, {}, at(32))}, {}, at(32));
    }
};

}  // namespace

Program decoder(const DecoderShape& s) {
    Program p;
    p.name = "decoder";
    Builder b(p);
    const ValueId tokens = b.input("tokens", {DType::i32, {s.batch, s.seq}}, {"batch", "seq"}, at(1));
    const ValueId targets = b.input("targets", {DType::i32, {s.batch, s.seq}}, {"batch", "seq"}, at(2));
    const ValueId table = b.param("embed", {DType::f32, {s.vocab, s.embed}}, {"vocab", "embed"}, normal(0.02), at(3));
    b.push_scope("embed");
    Decoder d{s, b, b.one("embedding", {tokens, table}, {}, at(4))};
    b.pop_scope();
    b.push_scope("layers");
    for (int64_t i = 0; i < s.layers; ++i) {
        b.push_scope(fmt::format("{}", i));
        d.attention(fmt::format("layers.{}", i));
        d.feed_forward(fmt::format("layers.{}", i));
        b.pop_scope();
    }
    b.pop_scope();
    b.push_scope("head");
    const ValueId logits = b.one("matmul", {d.norm("norm"), table}, {{"trans_b", true}}, at(40));
    const auto loss = b.add("cross_entropy", {logits, targets}, {}, at(41));
    b.result("loss_sum", loss[0], at(41));
    b.result("count", loss[1], at(41));
    return p;
}

namespace {

constexpr const char* awkward[] = {"",        "layers.0",    "a b", "quote\"d", "semi; colon", "x by y",
                                   "at %3 z", "back\\slash", "1",   "true",     "line\nbreak", "#hash",
                                   "a=b,c",   "{brace}"};

class Randomly {
public:
    Randomly(Program& p, uint32_t seed) : p_(p), b_(p), random_(seed) {}

    void run() {
        p_.name = text();
        for (int i = 0; i < 4; ++i) {
            b_.input(fmt::format("in{}{}", i, text()), {DType::f32, shape()}, {}, origin());
            const ValueId w =
                b_.param(fmt::format("w{}{}", i, text()), {DType::f32, shape()}, {}, normal(0.5), origin());
            b_.state(w, fmt::format("m{}", i), {DType::f32, p_.value(w).type.shape}, {}, origin());
            pool_.insert(pool_.end(), {w - 1, w});
        }
        for (Phase phase : {Phase::forward, Phase::backward, Phase::update}) {
            b_.set_phase(phase);
            for (int i = 0; i < 12; ++i) step(phase);
        }
        notes();
    }

private:
    int below(int n) { return static_cast<int>(random_() % static_cast<uint32_t>(n)); }
    ValueId any() { return pool_[static_cast<size_t>(below(static_cast<int>(pool_.size())))]; }
    std::string text() { return awkward[below(std::size(awkward))]; }
    // Origins as scripts and strategies make them, and stranger ones.
    Origin origin() {
        if (below(4) == 0) return {};
        if (below(4) == 0) return {text(), text(), below(3), below(3)};
        return {below(2) ? "tensor" : "", below(4) ? "mlp.lua" : "", below(100), below(9)};
    }
    Shape shape() {
        Shape s;
        for (int i = below(4); i > 0; --i) s.push_back(1 + below(4));
        return s;
    }

    void step(Phase phase) {
        if (below(3) == 0) b_.set_scope(text());
        b_.set_forward(phase == Phase::forward || below(2) ? none : below(forward_ops_));
        try {
            const auto made = b_.add(kind(), operands(), attributes_, origin());
            pool_.insert(pool_.end(), made.begin(), made.end());
            if (below(3) == 0) b_.name(made[0], fmt::format("t{}{}", made[0], text()), {});
            if (below(3) == 0) p_.value(made[0]).origin = origin();
            if (below(3) == 0) p_.value(made.back()).causes = {origin(), origin()};
            if (below(3) == 0) p_.ops.back().stage = below(4);
            if (phase == Phase::forward) forward_ops_ = static_cast<int>(p_.ops.size());
        } catch (const Error&) {  // operands that do not fit: another try
        }
    }

    std::string kind() {
        static const char* kinds[] = {"add",   "mul",       "gelu", "scale",      "sum",         "cast",
                                      "slice", "layernorm", "full", "all_reduce", "swiglu_grad", "transpose"};
        kind_ = forward_ops_ == 0 ? "full" : kinds[below(std::size(kinds))];
        attributes_ = {};
        if (kind_ == "full") attributes_ = {{"shape", shape()}, {"value", below(2) ? 0.1 : -3.0}};
        if (kind_ == "scale") attributes_ = {{"by", 1e-7 * below(1000)}};
        if (kind_ == "cast") attributes_ = {{"dtype", std::string(below(2) ? "bf16" : "f32")}};
        if (kind_ == "sum") attributes_ = {{"dims", std::vector<int64_t>{-1}}, {"keep", below(2) == 0}};
        if (kind_ == "slice") attributes_ = {{"dim", int64_t{0}}, {"start", int64_t{0}}, {"size", int64_t{1}}};
        if (kind_ == "all_reduce") attributes_ = {{"axis", text()}, {"cause", text()}};
        if (kind_ == "transpose") attributes_ = {{"perm", std::vector<int64_t>{1, 0}}};
        return kind_;
    }
    std::vector<ValueId> operands() {
        const ValueId x = any();
        if (kind_ == "full") return {};
        if (kind_ == "add" || kind_ == "mul") return {x, any()};
        if (kind_ == "layernorm") return {x, any(), any()};
        if (kind_ == "swiglu_grad") return {x, x, x};
        return {x};
    }

    void notes() {
        for (int i = 0; i < 12; ++i) {
            const ValueId id = any();
            const int rank = static_cast<int>(p_.value(id).type.shape.size());
            const Placement where = rank > 0 && below(2) ? Placement::split(below(rank))
                                    : below(2)           ? Placement::replicated()
                                                         : Placement::partial(ReduceOp::max);
            const std::string axis = below(2) ? "dp" : text();
            if (below(2))
                p_.store(id, axis, where, origin(), below(2) == 0);
            else
                p_.use(id, axis, where, origin(), below(2) ? Keep::fragment : Keep::step, below(2) == 0);
        }
        p_.stage("layers.0", 1, origin());
        p_.recompute(text(), origin());
        p_.recompute(text(), origin(), {"gelu", text()});
        p_.note(any(), text(), origin());
        p_.microbatches(1 + below(4), {});
        p_.bucket("dp", below(1 << 20), {});
        if (below(2)) p_.edge("tp", Phase::forward, "bucket", int64_t{below(1 << 20)}, {});
        if (below(2)) p_.reduce_as("dp", DType::bf16, {});
        if (below(2)) p_.prefetch("dp", {below(4), 0}, {});
        if (below(2)) p_.prefetch("tp", {0, below(1 << 20)}, {});
        for (ValueId param : p_.params()) p_.set_grad(param, any());
        for (ValueId param : p_.params()) p_.updates.push_back({param, any()});
        p_.results.push_back({text(), any()});
        p_.results.push_back({"loss", any()});
    }

    Program& p_;
    Builder b_;
    std::mt19937 random_;
    std::vector<ValueId> pool_;
    Attributes attributes_;
    std::string kind_;
    int forward_ops_ = 0;
};

std::string value_difference(const Value& a, const Value& b) {
    if (a.name != b.name) return "name";
    if (a.type != b.type) return "type";
    if (a.dims != b.dims) return "dims";
    if (a.role != b.role || a.of != b.of) return "role";
    if (a.init != b.init) return "init";
    if (a.op != b.op || a.output != b.output) return "maker";
    if (!(a.layout == b.layout)) return "layout";
    if (a.causes != b.causes) return "causes";
    return a.origin == b.origin ? "" : "origin";
}

std::string op_difference(const Op& a, const Op& b) {
    if (a.kind != b.kind) return "kind";
    if (a.attributes != b.attributes) return "attributes";
    if (a.inputs != b.inputs || a.outputs != b.outputs) return "operands";
    if (a.phase != b.phase || a.scope != b.scope) return "phase or scope";
    if (a.forward != b.forward || a.stage != b.stage) return "forward or stage";
    return a.origin == b.origin ? "" : "origin";
}

auto key(const Mark& m) {
    return std::tuple(m.value, m.what, m.axis, m.placement.text(), m.keep, m.optional, m.origin.text());
}
auto key(const ScopeMark& m) { return std::tuple(m.scope, m.stage, m.recompute, m.origin.text(), m.kinds); }
auto key(const Remark& n) { return std::tuple(n.value, n.text, n.origin.text()); }
auto key(const Update& u) { return std::tuple(u.target, u.value); }
auto key(const Result& r) { return std::tuple(r.name, r.value); }

template <class List>
bool same(const List& a, const List& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                      [](const auto& x, const auto& y) { return key(x) == key(y); });
}

}  // namespace

Program random_program(uint32_t seed) {
    Program p;
    Randomly(p, seed).run();
    return p;
}

std::string difference(const Program& a, const Program& b) {
    if (a.name != b.name) return "name";
    if (a.values.size() != b.values.size()) return "number of values";
    for (size_t i = 0; i < a.values.size(); ++i) {
        const std::string what = value_difference(a.values[i], b.values[i]);
        if (!what.empty()) return fmt::format("%{}: {}", i, what);
    }
    if (a.ops.size() != b.ops.size()) return "number of ops";
    for (size_t i = 0; i < a.ops.size(); ++i) {
        const std::string what = op_difference(a.ops[i], b.ops[i]);
        if (!what.empty()) return fmt::format("op {}: {}", i, what);
    }
    if (!same(a.updates, b.updates)) return "updates";
    if (!same(a.results, b.results)) return "results";
    if (!same(a.marks(), b.marks())) return "marks";
    if (!same(a.ignored(), b.ignored())) return "ignored marks";
    if (!same(a.scope_marks(), b.scope_marks())) return "scope marks";
    if (!same(a.remarks(), b.remarks())) return "remarks";
    if (a.grads() != b.grads()) return "gradients";
    if (a.edges() != b.edges()) return "edges";
    return a.microbatches() == b.microbatches() ? "" : "micro-batches";
}

}  // namespace orrery::test
