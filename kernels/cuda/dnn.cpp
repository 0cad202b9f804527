// Attention by cuDNN's fused engines, which never store a score; by our own kernel when cuDNN has no engine that fits.
#include <memory>

#include "kernels/cuda/own_attention.h"

#ifdef ORRERY_CUDNN
#include <cuda_runtime_api.h>

#include <algorithm>

#include "kernels/cuda/check.h"
#include "kernels/cuda/dnn_attention.h"
#endif

namespace orrery::kernels::cuda {

#ifdef ORRERY_CUDNN

namespace {

std::string key_of(const Attention& s, Type type, bool backward, bool deterministic) {
    std::string key = "attention";
    for (const i64 n : {s.batch, s.queries, s.keys, s.heads, s.groups, s.head_dim, s.shift, s.window, s.value_dim,
                        s.blocks, i64{s.causal}, i64{s.indexed}})
        key += " " + std::to_string(n);
    return key +
           (type == Type::bf16  ? " bf16"
            : type == Type::f16 ? " f16"
                                : " f32") +
           (backward ? " grad" : "") + (deterministic ? "" : " any order");
}

/// cuDNN's plan or its refusal, made once for all kernels of one key. The plan does not depend on the scale.
struct Found {
    std::unique_ptr<DnnAttentionPlan> plan;
    std::string why;
};

Found* find(Context& context, const Attention& s, Type type, bool backward) {
    auto found = std::make_unique<Found>();
    const DnnMachine machine{cudnnGetVersion(), context.chip().major, context.chip().minor};
    found->why = dnn_refusal(s, type, backward, context.deterministic, machine);
    if (!found->why.empty()) return found.release();
    DnnTarget target;
    try {
        target.handle = context.dnn();
    } catch (const std::runtime_error& failure) {
        found->why = std::string("there is no cuDNN: ") + failure.what();
        return found.release();
    }
    found->plan = plan_attention(s, type, backward, context.deterministic, machine, target, found->why);
    return found.release();
}

/// One direction: cuDNN's plan if there is one, and our own kernel otherwise and for unaligned operands.
class DnnAttention {
public:
    DnnAttention(const Attention& s, Type type, bool backward)
        : s_(s), type_(type), backward_(backward), own_(backward ? own_attention_grad(s) : own_attention(s)) {}

    void operator()(Call& call, Operands t) {
        if (call.rehearsal) return rehearse(call, t);
        bool aligned = true;
        for (const Tensor& one : t) aligned = aligned && reinterpret_cast<std::uintptr_t>(one.data) % 16 == 0;
        if (!found_->plan || !aligned) return own_(call, t);
        run(call, t);
    }

private:
    void rehearse(Call& call, Operands t) {
        const bool of_lse = backward_ && t.size() % 2 == 0;  // one operand more than the rest
        if (of_lse)
            found_ = std::make_shared<Found>(Found{nullptr, "cuDNN has no gradient of lse"});
        else
            found_ = call.gpu->keep<Found>(key_of(s_, type_, backward_, call.gpu->deterministic),
                                           [&] { return find(*call.gpu, s_, type_, backward_); });
        const i64 before = call.used;
        own_(call, t);
        const i64 own = call.used;
        call.used = before;
        if (found_->plan) take(call);
        call.used = std::max(own, call.used);
        call.how = !found_->plan ? "own kernel: " + found_->why
                                 : found_->plan->how() + "; ours where an operand is not aligned to 16 bytes" +
                                       (found_->why.empty() ? "" : "; left out: " + found_->why);
    }

    struct Scratch {
        void *delta, *sum, *workspace;
    };
    Scratch take(Call& call) const {
        const DnnAttentionPlan& plan = *found_->plan;
        return {call.take(plan.delta_bytes()), call.take(plan.sum_bytes()), call.take(plan.graph().workspace())};
    }

    void run(Call& call, Operands t) const {
        const DnnAttentionPlan& plan = *found_->plan;
        const DnnAttempt& part = plan.attempt();
        const Scratch scratch = take(call);
        const auto scale = static_cast<float>(s_.scale);
        const float unseen = plan.unseen(), one = 1;
        for (i64 batch = 0; batch < s_.batch; batch += part.batch) {
            for (i64 group = 0; group < s_.groups; group += part.groups) {
                const i64 head = group * (s_.heads / s_.groups);
                const i64 wide = ((batch * s_.queries) * s_.heads + head) * s_.head_dim * size_of(type_);
                const i64 narrow = ((batch * s_.keys) * s_.groups + group) * s_.head_dim * size_of(type_);
                const i64 row = (batch * s_.heads + head) * s_.queries * 4;
                std::vector<std::pair<i64, const void*>> at{{scale_id, &scale}};
                if (s_.causal) at.emplace_back(unseen_id, &unseen);
                // in the order of ids, from q_id on
                const i64 offsets[] = {wide, narrow, narrow, wide, row, wide, wide, narrow, narrow};
                for (size_t i = 0; i < t.size(); ++i)
                    at.emplace_back(q_id + static_cast<i64>(i), static_cast<const char*>(t[i].data) + offsets[i]);
                if (backward_) at.insert(at.end(), {{one_id, &one}, {delta_id, scratch.delta}});
                if (part.form == DnnForm::summed) at.emplace_back(sum_id, scratch.sum);
                if (plan.clears_sum()) {
                    const auto bytes = static_cast<size_t>(plan.sum_bytes());
                    check(cudaMemsetAsync(scratch.sum, 0, bytes, call.stream), "clearing the gradient of q");
                }
                plan.graph().run(call.gpu->dnn(), at, scratch.workspace);
            }
        }
    }

    Attention s_;
    Type type_;
    bool backward_;
    Launch own_;
    std::shared_ptr<Found> found_;
};

Launch by_dnn(const Attention& s, Type type, bool backward) {
    return [run = std::make_shared<DnnAttention>(s, type, backward)](Call& call, Operands t) { (*run)(call, t); };
}

}  // namespace

Launch library_attention(const Attention& sizes, Type type) { return by_dnn(sizes, type, false); }

Launch library_attention_grad(const Attention& sizes, Type type) { return by_dnn(sizes, type, true); }

#else

namespace {

Launch said(Launch own) {
    return [own = std::move(own)](Call& call, Operands t) {
        if (call.rehearsal) call.how = "own kernel: this build has no cuDNN";
        own(call, t);
    };
}

}  // namespace

Launch library_attention(const Attention& sizes, Type) { return said(own_attention(sizes)); }

Launch library_attention_grad(const Attention& sizes, Type) { return said(own_attention_grad(sizes)); }

#endif

}  // namespace orrery::kernels::cuda
