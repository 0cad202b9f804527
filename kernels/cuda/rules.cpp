#include "kernels/cuda/rules.h"

#include "kernels/tiled_loss.h"

namespace orrery::kernels::ORRERY_BLOCKS {

void add_elementwise(Kernels&);
void add_moves(Kernels&);
void add_random(Kernels&);
void add_product(Kernels&);
void add_grouped_matmul(Kernels&);
void add_reduce(Kernels&);
void add_norm(Kernels&);
void add_merge(Kernels&);
void add_loss(Kernels&);
void add_tokens(Kernels&);
void add_index(Kernels&);
void add_dispatch(Kernels&);
void add_codes(Kernels&);
void add_attention(Kernels&);
void add_update(Kernels&);

const Kernels& table() {
    static const Kernels kernels = [] {
        Kernels k{};
        add_elementwise(k);
        add_moves(k);
        add_random(k);
        add_product(k);
        add_grouped_matmul(k);
        add_reduce(k);
        add_norm(k);
        add_merge(k);
        add_loss(k);
        add_tokens(k);
        add_index(k);
        add_dispatch(k);
        add_codes(k);
        add_attention(k);
        add_update(k);
        return k;
    }();
    return kernels;
}

namespace {

/// Adapts a launch that takes a Call to the rules.
rules::Launch with_call(Launch own) {
    return [own = std::move(own)](kernels::Context& c, Operands t) { own(call_of(c), t); };
}

/// The vendor library's matrix products, made once for each size. The rehearsal of a kernel makes all that its launches
/// need.
class TileProducts {
public:
    void operator()(Call& call, const Matmul& sizes, In a, In b, In bias, Out y, bool biased) {
        for (const auto& [own, run] : made_)
            if (own == sizes) return run(call, a, b, bias, y, {});
        made_.emplace_back(sizes, library_product(sizes, Epilogue::none, biased));
        made_.back().second(call, a, b, bias, y, {});
    }

private:
    std::vector<std::pair<Matmul, ProductCall>> made_;
};

const rules::Target& target() {
    static const rules::Target made{
        .kernels = table(),
        .norms_of_one_type = true,
        .most_head_dim = 256,
        .copy = [](kernels::Context& c, const void* from, void* to,
                   i64 bytes) { copy_dense(call_of(c), from, to, bytes); },
        .product =
            [](const Kernels&, const Matmul& s, Epilogue epilogue, bool bias, bool keeps_pre) {
                return with_call([run = library_product(s, epilogue, bias, keeps_pre), bias, keeps_pre](Call& c,
                                                                                                        Operands t) {
                    const size_t y = bias ? 3 : 2;
                    run(c, in(t[0]), in(t[1]), bias ? in(t[2]) : In{}, out(t[y]), keeps_pre ? out(t[y + 1]) : Out{});
                });
            },
        .bias_grad =
            [](const Kernels&, const Matmul& s) {
                return with_call([run = library_bias_grad(s)](Call& c, Operands t) {
                    run(c, in(t[0]), in(t[1]), out(t[2]), out(t[3]));
                });
            },
        .gelu_grad =
            [](const Matmul& s, UnaryGrad op) {
                return with_call([run = library_gelu_grad(s, op)](Call& c, Operands t) {
                    run(c, in(t[0]), in(t[1]), in(t[2]), out(t[3]));
                });
            },
        .attention =
            [](const Attention& s, Type type, bool gradient) {
                return with_call(gradient ? library_attention_grad(s, type) : library_attention(s, type));
            },
        .attention_by_index = true,
        .tiled_loss =
            [] {
                return std::function([products = TileProducts()](kernels::Context& c, const TiledLoss& s,
                                                                 const TiledLossData& t) mutable {
                    const auto product = [&](Call& call, const Matmul& p, In a, In b, In bias, Out y) {
                        products(call, p, a, b, bias, y, s.bias && p == logits_product(s, p.m));
                    };
                    tiled_loss(call_of(c), s, t, product);
                });
            },
    };
    return made;
}

}  // namespace

rules::Launch resolve(const Spec& spec) { return rules::resolve(spec, target()); }

SpecKernel::SpecKernel(const Spec& spec, Call& rehearsal) : launch_(resolve(spec)) {
    for (const std::vector<Operand>* side : {&spec.inputs, &spec.outputs}) {
        for (const Operand& o : *side) tensors_.push_back({nullptr, o.type, o.count() * size_of(o.type)});
    }
    rehearsal.rehearsal = true;
    launch_(rehearsal, tensors_);
    scratch_ = rehearsal.used;
    how_ = rehearsal.how;
}

void SpecKernel::run(Call& call, std::span<void* const> operands) {
    for (size_t i = 0; i < tensors_.size(); ++i) tensors_[i].data = operands[i];
    launch_(call, tensors_);
}

}  // namespace orrery::kernels::ORRERY_BLOCKS
