// Small programs for the tests of propagation: a perceptron and a transformer block with their backward pass and
// update.
#pragma once
#include "compile/passes/differentiate.h"
#include "compile/passes/precision.h"
#include "ir/build.h"
#include "orrery/program.h"

namespace orrery::test {

using Names = std::vector<std::string>;

/// A builder that remembers its program and gives each line of the model an origin.
class Model {
public:
    Program program;
    Builder build{program};
    DType compute = DType::f32;
    int line = 1;

    Origin here() { return {"", "model.lua", line++, 0}; }
    ValueId input(std::string_view name, Shape shape, Names dims, DType dtype = DType::f32) {
        return build.input(name, {dtype, std::move(shape)}, std::move(dims), here());
    }
    ValueId param(std::string_view name, Shape shape, Names dims) {
        return build.param(name, {DType::f32, std::move(shape)}, std::move(dims), {{"kind", std::string("normal")}},
                           here());
    }
    ValueId op(std::string_view kind, std::vector<ValueId> inputs, Attributes attributes = {},
               const std::vector<Names>& names = {}) {
        return build.one(kind, std::move(inputs), std::move(attributes), here(), names);
    }
    /// sum(y * y), the backward pass, and AdamW for every param, with `clip` by the gradient's norm.
    void train(ValueId loss, bool clip = false) {
        build.result("loss_sum", loss, here());
        set_precision(program, compute);
        differentiate(program, loss);
        build.set_phase(Phase::update);
        const ValueId lr = input("lr", {}, {});
        const ValueId step = input("step", {}, {});
        ValueId scale = op("full", {}, {{"shape", std::vector<int64_t>{}}, {"value", 0.125}});
        const std::vector<ValueId> params = program.params();
        if (clip) {
            ValueId total = none;
            for (ValueId p : params) {
                const ValueId square = op("sumsq", {program.grad_of(p)});
                total = total == none ? square : op("add", {total, square});
            }
            scale = op("div", {scale, op("sqrt", {total})});
            build.result("grad_norm", total, here());
        }
        for (ValueId p : params) {
            const std::string name = program.value(p).name;
            const TensorType type = program.value(p).type;
            const ValueId m = build.state(p, name + ".m", type, {{"kind", std::string("zeros")}});
            const ValueId v = build.state(p, name + ".v", type, {{"kind", std::string("zeros")}});
            const auto next = build.add("adamw", {p, program.grad_of(p), m, v, lr, scale, step}, {}, here());
            build.update(p, next[0], here());
            build.update(m, next[1], here());
            build.update(v, next[2], here());
        }
    }
    void store(std::string_view value, std::string_view axis, Placement placement, std::string who = "test") {
        program.store(*program.find(value), axis, placement, {who, "strategy.lua", 1, 0});
    }
    void use(std::string_view value, std::string_view axis, Placement placement, Keep keep = Keep::step) {
        program.use(*program.find(value), axis, placement, {"test", "strategy.lua", 2, 0}, keep);
    }
    /// Marks every param's and input's dims by their names.
    void split_names(const std::vector<std::pair<std::string, std::string>>& name_to_axis) {
        for (const auto& [name, axis] : name_to_axis)
            for (size_t id = 0; id < program.values.size(); ++id) {
                const Value& value = program.values[id];
                if (value.role != Role::param && value.role != Role::input) continue;
                if (const auto dim = program.dim(static_cast<ValueId>(id), name))
                    program.store(static_cast<ValueId>(id), axis, Placement::split(*dim), {axis, "strategy.lua", 1, 0});
            }
    }
};

/// x [batch, embed] -> up, gelu, down, with biases; loss = sum of squares.
inline Model mlp(int64_t batch, int64_t embed, int64_t hidden, bool bias = true, bool clip = false,
                 DType compute = DType::f32) {
    Model m;
    m.compute = compute;
    const ValueId x = m.input("x", {batch, embed}, {"batch", "embed"});
    m.build.push_scope("mlp");
    const auto layer = [&](ValueId in, std::string name, Shape shape, Names dims) {
        const int64_t n = shape[1];
        const std::string out = dims[1];
        std::vector<ValueId> operands{in, m.param(name + ".w", std::move(shape), std::move(dims))};
        if (bias) operands.push_back(m.param(name + ".b", {n}, {out}));
        return m.op("matmul", operands);
    };
    const ValueId h = m.op("gelu", {layer(x, "up", {embed, hidden}, {"embed", "mlp"})});
    const ValueId y = layer(h, "down", {hidden, embed}, {"mlp", "embed"});
    m.build.pop_scope();
    m.train(m.op("sum", {m.op("square", {y})}, {{"dims", std::vector<int64_t>{0, 1}}}), clip);
    return m;
}

/// One transformer block over embedded tokens, pre-norm, fused cross entropy, head tied to the embedding when asked.
inline Model block(int64_t batch, int64_t seq, int64_t heads, int64_t head_dim, int64_t vocab, bool tied,
                   bool clip = false, DType compute = DType::f32) {
    Model m;
    m.compute = compute;
    using Ints = std::vector<int64_t>;
    const int64_t embed = heads * head_dim;
    const ValueId tokens = m.input("tokens", {batch, seq}, {"batch", "seq"}, DType::i32);
    const ValueId targets = m.input("targets", {batch, seq}, {"batch", "seq"}, DType::i32);
    const ValueId table = m.param("embed.w", {vocab, embed}, {"vocab", "embed"});
    ValueId x = m.op("embedding", {tokens, table});
    const auto norm = [&](ValueId in, std::string name) {
        const ValueId gain = m.param(name + ".gain", {embed}, {"embed"});
        return m.build.add("rmsnorm", {in, gain}, {}, m.here())[0];
    };
    m.build.push_scope("attn");
    const ValueId h = norm(x, "norm1");
    std::vector<ValueId> qkv;
    for (const char* name : {"q", "k", "v"}) {
        const ValueId w = m.param(std::string(name) + ".w", {embed, embed}, {"embed", "heads"});
        const ValueId flat = m.op("matmul", {h, w});
        qkv.push_back(m.op("reshape", {flat}, {{"shape", Ints{batch, seq, heads, head_dim}}},
                           {{"batch", "seq", "heads", "head_dim"}}));
    }
    qkv[0] = m.op("rope", {qkv[0]});
    qkv[1] = m.op("rope", {qkv[1]});
    const ValueId o = m.build.add("attention", qkv, {{"causal", true}}, m.here())[0];
    const ValueId merged = m.op("reshape", {o}, {{"shape", Ints{batch, seq, embed}}}, {{"batch", "seq", "heads"}});
    x = m.op("add", {x, m.op("matmul", {merged, m.param("o.w", {embed, embed}, {"heads", "embed"})})});
    m.build.name(x, "residual1", {});
    m.build.pop_scope();
    m.build.push_scope("mlp");
    const ValueId g = norm(x, "norm2");
    const ValueId up = m.op("silu", {m.op("matmul", {g, m.param("up.w", {embed, 2 * embed}, {"embed", "mlp"})})});
    x = m.op("add", {x, m.op("matmul", {up, m.param("down.w", {2 * embed, embed}, {"mlp", "embed"})})});
    m.build.name(x, "residual2", {});
    m.build.pop_scope();
    const ValueId logits =
        tied ? m.op("matmul", {norm(x, "norm3"), table}, {{"trans_b", true}})
             : m.op("matmul", {norm(x, "norm3"), m.param("head.w", {embed, vocab}, {"embed", "vocab"})});
    const auto loss = m.build.add("cross_entropy", {logits, targets}, {}, m.here());
    m.build.result("count", loss[1], m.here());
    m.train(loss[0], clip);
    return m;
}

/// Many layers of norm, up, silu, down and add.
inline Model deep(int layers, int64_t batch, int64_t embed) {
    Model m;
    ValueId x = m.input("x", {batch, 16, embed}, {"batch", "seq", "embed"});
    for (int i = 0; i < layers; ++i) {
        const std::string name = "layers." + std::to_string(i);
        m.build.push_scope(name);
        const ValueId gain = m.param(name + ".gain", {embed}, {"embed"});
        const ValueId h = m.build.add("rmsnorm", {x, gain}, {}, m.here())[0];
        const ValueId up = m.op("matmul", {h, m.param(name + ".up", {embed, 4 * embed}, {"embed", "mlp"})});
        const ValueId down = m.param(name + ".down", {4 * embed, embed}, {"mlp", "embed"});
        x = m.op("add", {x, m.op("matmul", {m.op("silu", {up}), down})});
        m.build.pop_scope();
    }
    m.train(m.op("sum", {m.op("square", {x})}, {{"dims", std::vector<int64_t>{0, 1, 2}}}), true);
    return m;
}

/// A residual network: x [batch, embed] -> table -> layers -> (with `tied`) the same table, turned round. `stages`: of
/// each layer.
inline Model network(const std::vector<int>& stages, bool tied, DType compute = DType::f32, int64_t batch = 8) {
    constexpr int64_t embed = 4, hidden = 12, width = 6;
    Model m;
    m.compute = compute;
    const ValueId x = m.input("x", {batch, width}, {"batch", "width"});
    const ValueId table = m.param("table", {width, embed}, {"width", "embed"});
    ValueId h = m.op("matmul", {x, table});
    for (size_t i = 0; i < stages.size(); ++i) {
        const std::string scope = "layers." + std::to_string(i);
        m.build.push_scope(scope);
        const ValueId up = m.param(scope + ".up", {embed, hidden}, {"embed", "mlp"});
        const ValueId bias = m.param(scope + ".bias", {hidden}, {"mlp"});
        const ValueId down = m.param(scope + ".down", {hidden, embed}, {"mlp", "embed"});
        const ValueId inner = m.op("gelu", {m.op("matmul", {h, up, bias})});
        h = m.op("add", {h, m.op("matmul", {inner, down})});
        m.build.pop_scope();
    }
    const ValueId head = tied ? table : m.param("head", {width, embed}, {"width", "embed"});
    const ValueId y = m.op("matmul", {h, head}, {{"trans_b", true}});
    m.train(m.op("sum", {m.op("square", {y})}, {{"dims", std::vector<int64_t>{0, 1}}}), true);
    for (size_t i = 0; i < stages.size(); ++i)
        m.program.stage("layers." + std::to_string(i), stages[i], {"pipeline", "strategy.lua", 1, 0});
    return m;
}

}  // namespace orrery::test
