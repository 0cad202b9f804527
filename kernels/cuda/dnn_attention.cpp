#ifdef ORRERY_CUDNN
#include "kernels/cuda/dnn_attention.h"

namespace orrery::kernels::cuda {

namespace {

/// Engines are looked up by the order of the operations, their types and which values are real tensors, so all of it is
/// as in cudnn-frontend 1.32 (node/scaled_dot_product_flash_attention.h, CompositeSDPA[Backward]Node). Tensors are
/// [batch, heads, time, dim], with any strides.
class AttentionGraph {
public:
    AttentionGraph(const Attention& s, Type type, const DnnAttempt& a)
        : s_(s), a_(a), type_(type == Type::bf16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF) {}

    void forward(DnnGraph& g) const {
        const DnnTensor q = g.operand(q_id, queries(), type_), k = g.operand(k_id, turned(keys()), type_);
        const DnnTensor score = unmasked(g, q, k, g.scalar(scale_id));
        const DnnTensor seen = s_.causal ? masked(g, score) : score;
        const DnnTensor top = g.inner(row()), shifted = g.inner(square()), raised = g.inner(square());
        const DnnTensor total = g.inner(row()), log = g.inner(row()), p = g.inner(square(), type_);
        g.reduce(CUDNN_REDUCE_TENSOR_MAX, seen, top);
        g.pointwise(CUDNN_POINTWISE_SUB, seen, top, shifted);
        g.pointwise(CUDNN_POINTWISE_EXP, shifted, nullptr, raised);
        g.reduce(CUDNN_REDUCE_TENSOR_ADD, raised, total);
        g.pointwise(CUDNN_POINTWISE_LOG, total, nullptr, log);
        g.pointwise(CUDNN_POINTWISE_ADD, top, log, g.operand(lse_id, row(), CUDNN_DATA_FLOAT));
        g.pointwise(CUDNN_POINTWISE_DIV, raised, total, p);
        g.matmul(p, g.operand(v_id, keys(), type_), g.operand(o_id, queries(), type_));
    }

    void backward(DnnGraph& g) const {
        const DnnTensor q = g.operand(q_id, queries(), type_), k = g.operand(k_id, turned(keys()), type_);
        const DnnTensor o = g.operand(o_id, queries(), type_), d_o = g.operand(d_o_id, queries(), type_);
        const DnnTensor scale = g.scalar(scale_id);
        // The mean of the slope over each query's softmax is d_o . o: a real tensor, which every tile of keys reads.
        const DnnTensor both = g.inner(dense_shape(a_.batch, a_.heads, s_.queries, s_.head_dim));
        const DnnTensor sum = g.inner(row()), delta = g.operand(delta_id, row(), CUDNN_DATA_FLOAT);
        g.pointwise(CUDNN_POINTWISE_MUL, d_o, o, both);
        g.reduce(CUDNN_REDUCE_TENSOR_ADD, both, sum);
        g.pointwise(CUDNN_POINTWISE_MUL, sum, g.scalar(one_id), delta);

        const DnnTensor score = unmasked(g, q, k, scale), shifted = g.inner(square()), p = g.inner(square());
        g.pointwise(CUDNN_POINTWISE_SUB, score, g.operand(lse_id, row(), CUDNN_DATA_FLOAT), shifted);
        g.pointwise(CUDNN_POINTWISE_EXP, s_.causal ? masked(g, shifted) : shifted, nullptr, p);
        of_group(g, p, d_o, dv_id);

        const DnnTensor slope = g.inner(square()), away = g.inner(square()), times = g.inner(square());
        const DnnTensor ds = g.inner(square());
        g.matmul(d_o, g.operand(v_id, turned(keys()), type_), slope);
        g.pointwise(CUDNN_POINTWISE_SUB, slope, delta, away);
        g.pointwise(CUDNN_POINTWISE_MUL, away, p, times);
        g.pointwise(CUDNN_POINTWISE_MUL, times, scale, ds);
        of_group(g, ds, q, dk_id);

        const DnnTensor straight = g.inner(keys(), type_);
        g.reshape(k, straight);
        const DnnTensor dq = g.operand(dq_id, queries(), type_);
        if (a_.form == DnnForm::stored) return g.matmul(ds, straight, dq);
        const DnnTensor gathered =
            g.operand(sum_id, dense_shape(a_.batch, a_.heads, s_.queries, s_.head_dim), CUDNN_DATA_FLOAT);
        g.matmul(ds, straight, gathered);
        g.pointwise(CUDNN_POINTWISE_IDENTITY, gathered, nullptr, dq);
    }

private:
    /// A slice of [batch, time, all, dim].
    DnnShape rows(i64 time, i64 heads, i64 all) const {
        return {{a_.batch, heads, time, s_.head_dim}, {time * all * s_.head_dim, s_.head_dim, all * s_.head_dim, 1}};
    }
    DnnShape queries() const { return rows(s_.queries, a_.heads, s_.heads); }
    DnnShape keys() const { return rows(s_.keys, a_.groups, s_.groups); }
    DnnShape square() const { return dense_shape(a_.batch, a_.heads, s_.queries, s_.keys); }
    DnnShape row() const { return dense_shape(a_.batch, a_.heads, s_.queries, 1); }
    static DnnShape turned(DnnShape s) {
        std::swap(s.size[2], s.size[3]);
        std::swap(s.step[2], s.step[3]);
        return s;
    }

    /// scale q k^T.
    DnnTensor unmasked(DnnGraph& g, DnnTensor q, DnnTensor k, DnnTensor scale) const {
        const DnnTensor raw = g.inner(square()), scaled = g.inner(square());
        g.matmul(q, k, raw);
        g.pointwise(CUDNN_POINTWISE_MUL, raw, scale, scaled);
        return scaled;
    }
    DnnTensor masked(DnnGraph& g, DnnTensor score) const {
        const DnnTensor query = g.inner(square(), CUDNN_DATA_INT32), key = g.inner(square(), CUDNN_DATA_INT32);
        const DnnTensor sees = g.inner(square(), CUDNN_DATA_BOOLEAN), result = g.inner(square());
        g.pointwise(CUDNN_POINTWISE_GEN_INDEX, score, nullptr, query, CUDNN_DATA_FLOAT, nullptr, 2);
        g.pointwise(CUDNN_POINTWISE_GEN_INDEX, score, nullptr, key, CUDNN_DATA_FLOAT, nullptr, 3);
        g.pointwise(CUDNN_POINTWISE_CMP_GE, query, key, sees, CUDNN_DATA_BOOLEAN);
        g.pointwise(CUDNN_POINTWISE_BINARY_SELECT, score, g.scalar(unseen_id), result, CUDNN_DATA_FLOAT, sees);
        return result;
    }
    /// The gradient of k or v, weights^T x: for every head, then summed over the heads of a group.
    void of_group(DnnGraph& g, DnnTensor weights, DnnTensor x, i64 id) const {
        const DnnTensor across = g.inner(turned(square()), type_);
        g.reshape(weights, across);
        const DnnTensor result = g.operand(id, keys(), type_);
        if (a_.heads == a_.groups) return g.matmul(across, x, result);
        const DnnTensor heads = g.inner(dense_shape(a_.batch, a_.heads, s_.keys, s_.head_dim), type_);
        g.matmul(across, x, heads);
        g.reduce(CUDNN_REDUCE_TENSOR_ADD, heads, result);
    }

    Attention s_;
    DnnAttempt a_;
    cudnnDataType_t type_;
};

cudnnBackendKnobType_t knob_of(const std::string& name) {
    if (name == "stages") return CUDNN_KNOB_TYPE_STAGES;
    if (name == "kernel") return CUDNN_KNOB_TYPE_KERNEL_CFG;
    if (name == "tile_m") return CUDNN_KNOB_TYPE_TILE_M;
    if (name == "tile_n") return CUDNN_KNOB_TYPE_TILE_N;
    if (name == "stream_k") return CUDNN_KNOB_TYPE_STREAM_K;
    if (name == "cga_m") return CUDNN_KNOB_TYPE_TILE_CGA_M;
    throw Failure("no knob of cuDNN: " + name);
}

std::string slices_text(const Attention& s, const DnnAttempt& a) {
    const i64 n = a.slices(s);
    return n == 1 ? ""
                  : ", " + std::to_string(n) + " slices of " + std::to_string(a.batch) + " x " +
                        std::to_string(a.heads) + " heads";
}

}  // namespace

DnnAttentionPlan::DnnAttentionPlan(const Attention& s, Type type, const DnnAttempt& attempt, const DnnMachine& machine,
                                   const DnnTarget& target, bool deterministic)
    : s_(s),
      attempt_(attempt),
      unseen_(dnn_unseen(machine.version)),
      clears_sum_(attempt.form == DnnForm::summed && machine.version < 90600),
      graph_(std::make_unique<DnnGraph>()) {
    const AttentionGraph graphs(s, type, attempt);
    if (attempt.form == DnnForm::forward)
        graphs.forward(*graph_);
    else
        graphs.backward(*graph_);
    DnnWish wish;
    // The stored form and engines with set knobs repeat their bits by construction, whatever an engine's notes say.
    wish.repeats = deterministic && attempt.form != DnnForm::stored && attempt.engine < 0;
    wish.most_workspace = dnn_most_scratch(s) - delta_bytes();
    wish.engine = attempt.engine;
    for (const auto& [name, value] : attempt.knobs) wish.knobs.emplace_back(knob_of(name), value);
    graph_->build(target, wish);
    how_ = "cuDNN " + dnn_version_text(machine.version) + ", " + graph_->chosen() + slices_text(s, attempt);
}

i64 DnnAttentionPlan::delta_bytes() const {
    return attempt_.form == DnnForm::forward ? 0 : attempt_.batch * attempt_.heads * s_.queries * 4;
}

i64 DnnAttentionPlan::sum_bytes() const {
    return attempt_.form == DnnForm::summed ? attempt_.batch * attempt_.heads * s_.queries * s_.head_dim * 4 : 0;
}

std::unique_ptr<DnnAttentionPlan> plan_attention(const Attention& s, Type type, bool backward, bool deterministic,
                                                 const DnnMachine& machine, const DnnTarget& target, std::string& why) {
    why = dnn_refusal(s, type, backward, deterministic, machine);
    if (!why.empty()) return nullptr;
    for (const DnnAttempt& attempt : dnn_attempts(s, backward, deterministic, machine)) {
        try {
            return std::make_unique<DnnAttentionPlan>(s, type, attempt, machine, target, deterministic);
        } catch (const Failure& failure) {
            why += (why.empty() ? "" : "; ") + std::string("cuDNN") + slices_text(s, attempt) + ": " + failure.what();
        }
    }
    if (why.empty()) why = "the scores of a single head exceed the scratch that cuDNN may have";
    return nullptr;
}

}  // namespace orrery::kernels::cuda
#endif
