// Merges of two attentions over disjoint keys, and their gradient.
#pragma once

#include "kernels/cuda/call.h"
#include "kernels/cuda/run.h"

namespace orrery::kernels::ORRERY_BLOCKS {

namespace {

/// o = pa o_a + pb o_b and lse. A thread an element; that of a row's first element writes its lse.
struct MergeRows {
    static constexpr int threads = 256;
    static constexpr bool barriers = false;
    Merge s;
    AnyIn a, b;
    const float *lse_a, *lse_b;
    float *o, *lse;
    i64 n;
    ORRERY_DEVICE void operator()(const Block& block) const {
        for (i64 e = block.index() * threads + block.thread(); e < n; e += block.blocks() * threads) {
            const i64 row = e / s.dim, at = statistic_of(s, row);
            const auto share = merge_shares(lse_a[at], lse_b[at]);
            o[e] = share.a * a.at(e) + share.b * b.at(e);
            if (e == row * s.dim) lse[at] = share.lse;
        }
    }
};

/// The gradients of both parts. A block a row.
struct MergeGradRows {
    static constexpr int threads = 256;
    static constexpr bool barriers = true;
    Merge s;
    AnyIn a, b, d;
    const float *lse_a, *lse_b, *dlse;  ///< dlse may be null
    AnyOut da, db;
    float *dlse_a, *dlse_b;
    ORRERY_DEVICE void operator()(const Block& block) const {
        const i64 from = block.index() * s.dim, at = statistic_of(s, block.index());
        const auto share = merge_shares(lse_a[at], lse_b[at]);
        float dot = 0;
        for (i64 c = block.thread(); c < s.dim; c += block.threads()) {
            const float v = d.at(from + c);
            dot += v * (a.at(from + c) - b.at(from + c));
            da.put(from + c, share.a * v);
            db.put(from + c, share.b * v);
        }
        dot = block_sum(block, dot, block.shared<float>());
        if (block.thread() != 0) return;
        const float own = dlse == nullptr ? 0.0f : dlse[at];
        dlse_a[at] = share.a * (own + share.b * dot);
        dlse_b[at] = share.b * (own - share.a * dot);
    }
};

void merge(kernels::Context& context, const Merge& s, In o_a, In lse_a, In o_b, In lse_b, Out o, Out lse) {
    Call& call = call_of(context);
    const i64 n = s.rows() * s.dim;
    launch(call, blocks_for(call, n, MergeRows::threads),
           MergeRows{s, AnyIn(o_a, false), AnyIn(o_b, false), lse_a.as<float>(), lse_b.as<float>(), o.as<float>(),
                     lse.as<float>(), n});
}

void merge_grad(kernels::Context& context, const Merge& s, In o_a, In lse_a, In o_b, In lse_b, In d_o, In d_lse,
                Out do_a, Out dlse_a, Out do_b, Out dlse_b) {
    const MergeGradRows body{s,
                             AnyIn(o_a, false),
                             AnyIn(o_b, false),
                             AnyIn(d_o, false),
                             lse_a.as<float>(),
                             lse_b.as<float>(),
                             d_lse.as<float>(),
                             AnyOut(do_a, false),
                             AnyOut(do_b, false),
                             dlse_a.as<float>(),
                             dlse_b.as<float>()};
    launch(call_of(context), s.rows(), body, 32 * 4, s.dim > 64 ? 128 : 32);
}

}  // namespace

void add_merge(Kernels& k) {
    k.merge = merge;
    k.merge_grad = merge_grad;
}

}  // namespace orrery::kernels::ORRERY_BLOCKS
