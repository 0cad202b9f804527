// Attention as a graph of cuDNN's operations, in the forms that its engines support.
#pragma once

#include <memory>
#include <string>

#include "kernels/cuda/dnn_graph.h"
#include "kernels/cuda/dnn_rules.h"

namespace orrery::kernels::cuda {

/// Operands of the graphs: q, k, v, o [batch, time, heads, dim], lse and delta f32 [batch, heads, queries].
enum DnnId : i64 {
    q_id = 1,
    k_id,
    v_id,
    o_id,
    lse_id,
    d_o_id,
    dq_id,
    dk_id,
    dv_id,
    scale_id,   ///< f32 in host memory
    unseen_id,  ///< f32 in host memory: the score of a key that a query does not see
    one_id,     ///< f32 in host memory: 1
    delta_id,   ///< backward, scratch: d_o . o of every query
    sum_id,     ///< DnnForm::summed, scratch f32 [batch, heads, queries, dim]: the gradient of q
};

/// A plan for one slice of an attention. It is immutable, so launches can share it.
class DnnAttentionPlan {
public:
    /// Throws Failure with the reasons of every engine.
    DnnAttentionPlan(const Attention& s, Type type, const DnnAttempt& attempt, const DnnMachine& machine,
                     const DnnTarget& target, bool deterministic);

    const Attention& sizes() const { return s_; }
    const DnnAttempt& attempt() const { return attempt_; }
    const DnnGraph& graph() const { return *graph_; }
    float unseen() const { return unseen_; }
    bool clears_sum() const { return clears_sum_; }  ///< the caller must zero sum_id first
    /// Bytes of delta_id and sum_id; 0 when the form has none.
    i64 delta_bytes() const;
    i64 sum_bytes() const;
    /// "cuDNN 9.19.0, engine 6, ..., 4 slices of 4 x 25 heads".
    const std::string& how() const { return how_; }

private:
    Attention s_;
    DnnAttempt attempt_;
    float unseen_;
    bool clears_sum_;
    std::unique_ptr<DnnGraph> graph_;
    std::string how_;
};

/// Tries the suitable forms, best first. Null with the reason in `why` when none can be built; otherwise `why` lists
/// what was tried before.
std::unique_ptr<DnnAttentionPlan> plan_attention(const Attention& s, Type type, bool backward, bool deterministic,
                                                 const DnnMachine& machine, const DnnTarget& target, std::string& why);

}  // namespace orrery::kernels::cuda
