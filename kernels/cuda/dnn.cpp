// Attention by cuDNN's fused engines, which never store a score; where cuDNN has none that fits, by our own kernel.
#include <memory>

#include "kernels/cuda/own_attention.h"

#ifdef ORRERY_CUDNN
#include <limits>

#include "kernels/cuda/dnn_graph.h"
#endif

namespace orrery::kernels::cuda {

#ifdef ORRERY_CUDNN

namespace {

enum Id : i64 { q_id = 1, k_id, v_id, o_id, lse_id, d_o_id, dq_id, dk_id, dv_id, scale_id, never_id };

/// The graphs of one attention. All tensors as [batch, heads, time, dim], however they lie in memory.
class AttentionGraph {
public:
    AttentionGraph(const Attention& s, Type type, bool fixed)
        : s_(s), fixed_(fixed), type_(type == Type::bf16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF) {}

    DnnGraph forward() const {
        DnnGraph g;
        const DnnTensor score = scores(g);
        const DnnTensor top = g.inner(row()), shifted = g.inner(square()), raised = g.inner(square());
        const DnnTensor total = g.inner(row()), log = g.inner(row()), p = g.inner(square(), type_);
        g.reduce(CUDNN_REDUCE_TENSOR_MAX, score, top);
        g.pointwise(CUDNN_POINTWISE_SUB, score, top, shifted);
        g.pointwise(CUDNN_POINTWISE_EXP, shifted, nullptr, raised);
        g.reduce(CUDNN_REDUCE_TENSOR_ADD, raised, total);
        g.pointwise(CUDNN_POINTWISE_LOG, total, nullptr, log);
        g.pointwise(CUDNN_POINTWISE_ADD, top, log, g.operand(lse_id, row(), CUDNN_DATA_FLOAT));
        g.pointwise(CUDNN_POINTWISE_DIV, raised, total, p);
        g.matmul(p, g.operand(v_id, keys(), type_), g.operand(o_id, queries(), type_));
        return g;
    }

    DnnGraph backward() const {
        DnnGraph g;
        const DnnTensor o = g.operand(o_id, queries(), type_), d_o = g.operand(d_o_id, queries(), type_);
        // The mean of d_o over each query's softmax is d_o . o.
        const DnnTensor both = g.inner(dense_shape(s_.batch, s_.heads, s_.queries, s_.head_dim)), mean = g.inner(row());
        g.pointwise(CUDNN_POINTWISE_MUL, d_o, o, both);
        g.reduce(CUDNN_REDUCE_TENSOR_ADD, both, mean, fixed_);

        const DnnTensor score = scores(g);
        const DnnTensor shifted = g.inner(square()), p = g.inner(square());
        g.pointwise(CUDNN_POINTWISE_SUB, score, g.operand(lse_id, row(), CUDNN_DATA_FLOAT), shifted);
        g.pointwise(CUDNN_POINTWISE_EXP, shifted, nullptr, p);
        const DnnTensor p_turned = g.inner(turned(), type_);
        g.reshape(p, p_turned);
        of_group(g, p_turned, d_o, dv_id);

        const DnnTensor slope = g.inner(square()), away = g.inner(square()), times = g.inner(square());
        const DnnTensor ds = g.inner(square(), type_);
        g.matmul(d_o, g.operand(v_id, keys_turned(), type_), slope);
        g.pointwise(CUDNN_POINTWISE_SUB, slope, mean, away);
        g.pointwise(CUDNN_POINTWISE_MUL, p, away, times);
        g.pointwise(CUDNN_POINTWISE_MUL, times, scale_, ds);
        g.matmul(ds, g.operand(k_id + straight, keys(), type_), g.operand(dq_id, queries(), type_));
        const DnnTensor ds_turned = g.inner(turned(), type_);
        g.reshape(ds, ds_turned);
        of_group(g, ds_turned, q_, dk_id);
        return g;
    }

    /// k is read as it lies and turned: two operands of one address.
    static constexpr i64 straight = 100;

private:
    DnnShape queries() const { return rows(s_.queries, s_.heads); }
    DnnShape keys() const { return rows(s_.keys, s_.groups); }
    DnnShape rows(i64 time, i64 heads) const {
        return {{s_.batch, heads, time, s_.head_dim},
                {time * heads * s_.head_dim, s_.head_dim, heads * s_.head_dim, 1}};
    }
    DnnShape keys_turned() const {
        const DnnShape k = keys();
        return {{k.size[0], k.size[1], k.size[3], k.size[2]}, {k.step[0], k.step[1], k.step[3], k.step[2]}};
    }
    DnnShape square() const { return dense_shape(s_.batch, s_.heads, s_.queries, s_.keys); }
    DnnShape turned() const {
        const DnnShape s = square();
        return {{s.size[0], s.size[1], s.size[3], s.size[2]}, {s.step[0], s.step[1], s.step[3], s.step[2]}};
    }
    DnnShape row() const { return dense_shape(s_.batch, s_.heads, s_.queries, 1); }

    /// scale q k^T, very small where a query does not see a key.
    DnnTensor scores(DnnGraph& g) const {
        q_ = g.operand(q_id, queries(), type_);
        scale_ = g.scalar(scale_id);
        const DnnTensor raw = g.inner(square()), scaled = g.inner(square());
        g.matmul(q_, g.operand(k_id, keys_turned(), type_), raw);
        g.pointwise(CUDNN_POINTWISE_MUL, raw, scale_, scaled);
        if (!s_.causal) return scaled;
        const DnnTensor query = g.inner(square(), CUDNN_DATA_INT32), key = g.inner(square(), CUDNN_DATA_INT32);
        const DnnTensor sees = g.inner(square(), CUDNN_DATA_BOOLEAN), masked = g.inner(square());
        g.pointwise(CUDNN_POINTWISE_GEN_INDEX, scaled, nullptr, query, CUDNN_DATA_INT32, nullptr, 2);
        g.pointwise(CUDNN_POINTWISE_GEN_INDEX, scaled, nullptr, key, CUDNN_DATA_INT32, nullptr, 3);
        g.pointwise(CUDNN_POINTWISE_CMP_GE, query, key, sees, CUDNN_DATA_BOOLEAN);
        g.pointwise(CUDNN_POINTWISE_BINARY_SELECT, scaled, g.scalar(never_id), masked, CUDNN_DATA_FLOAT, sees);
        return masked;
    }
    /// The gradient of k or v: of every head, then the sum over the heads of a group.
    void of_group(DnnGraph& g, DnnTensor weights, DnnTensor x, i64 id) const {
        const DnnTensor result = g.operand(id, keys(), type_);
        if (s_.heads == s_.groups) return g.matmul(weights, x, result);
        const DnnTensor heads = g.inner(dense_shape(s_.batch, s_.heads, s_.keys, s_.head_dim), type_);
        g.matmul(weights, x, heads);
        g.reduce(CUDNN_REDUCE_TENSOR_ADD, heads, result, fixed_);
    }

    Attention s_;
    bool fixed_;  ///< ask for sums in a fixed order
    cudnnDataType_t type_;
    mutable DnnTensor q_ = nullptr, scale_ = nullptr;
};

/// What cuDNN's engines are asked for at all: the mask is the plain triangle.
bool suits(const Attention& s, Type type) {
    return type != Type::f32 && s.head_dim % 8 == 0 && s.head_dim <= 256 && s.queries > 0 && s.keys > 0 &&
           s.batch > 0 && (!s.causal || (s.shift == 0 && s.queries == s.keys));
}

/// One direction: its graph when cuDNN has an engine, and our own kernel for the rest and for unaligned operands.
class DnnAttention {
public:
    DnnAttention(const Attention& s, Type type, bool backward)
        : s_(s), type_(type), backward_(backward), own_(backward ? own_attention_grad(s) : own_attention(s)) {}

    void operator()(Call& call, Operands t) {
        if (call.rehearsal) {
            call.how = build(*call.gpu);
            own_(call, t);
            if (graph_) call.take(graph_->workspace());
            return;
        }
        bool aligned = true;
        for (const Tensor& one : t) aligned = aligned && reinterpret_cast<std::uintptr_t>(one.data) % 16 == 0;
        if (!graph_ || !aligned) return own_(call, t);
        const auto scale = static_cast<float>(s_.scale);
        const float never = std::numeric_limits<float>::lowest();
        std::vector<std::pair<i64, const void*>> at{{q_id, t[0].data}, {k_id, t[1].data},   {v_id, t[2].data},
                                                    {o_id, t[3].data}, {lse_id, t[4].data}, {scale_id, &scale}};
        if (s_.causal) at.emplace_back(never_id, &never);
        if (backward_) {
            at.emplace_back(k_id + AttentionGraph::straight, t[1].data);
            for (i64 i = 0; i < 4; ++i) at.emplace_back(d_o_id + i, t[static_cast<size_t>(5 + i)].data);
        }
        graph_->run(call.gpu->dnn(), at, call.take(graph_->workspace()));
    }

private:
    /// Says who computes.
    std::string build(Context& context) {
        if (!suits(s_, type_)) return "own kernel: cuDNN has no engine for such types, sizes or masks";
        if (!context.has_dnn()) return "own kernel: there is no cuDNN";
        std::string why;
        for (const bool fixed : {true, false}) {  // not every engine knows the word, and some keep the order anyway
            try {
                const AttentionGraph graphs(s_, type_, fixed && backward_ && context.deterministic);
                auto graph = std::make_unique<DnnGraph>(backward_ ? graphs.backward() : graphs.forward());
                graph->build(context.dnn(), context.deterministic);
                graph_ = std::move(graph);
                return "cuDNN";
            } catch (const Failure& failure) {
                why = failure.what();
            }
        }
        return "own kernel: " + why;
    }

    Attention s_;
    Type type_;
    bool backward_;
    Launch own_;
    std::unique_ptr<DnnGraph> graph_;
};

Launch by_dnn(const Attention& s, Type type, bool backward) {
    return [run = std::make_shared<DnnAttention>(s, type, backward)](Call& call, Operands t) { (*run)(call, t); };
}

}  // namespace

Launch library_attention(const Attention& sizes, Type type) { return by_dnn(sizes, type, false); }

Launch library_attention_grad(const Attention& sizes, Type type) { return by_dnn(sizes, type, true); }

#else

Launch library_attention(const Attention& sizes, Type) { return own_attention(sizes); }

Launch library_attention_grad(const Attention& sizes, Type) { return own_attention_grad(sizes); }

#endif

}  // namespace orrery::kernels::cuda
