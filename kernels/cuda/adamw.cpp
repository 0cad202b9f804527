#include "kernels/cuda/prepared.h"
#include "kernels/cuda/updates.h"

namespace orrery::kernels::cuda {

namespace {

class AdamWKernel : public Prepared {
public:
    explicit AdamWKernel(const Spec& spec) : n_(spec.inputs[0].count()), inputs_(spec.inputs.size()) {
        update_.constants = {spec.number("beta1", 0.9), spec.number("beta2", 0.999), spec.number("eps", 1e-8),
                             spec.number("decay")};
        update_.g.type = spec.inputs[1].type;
        update_.n = n_;
    }

    void launch(Context& context, std::span<void* const> operands, void*) override {
        const Joined one{this, operands};
        launch_joined(context, {&one, 1});
    }

    int joins() const override { return 1; }

    void launch_joined(Context& context, std::span<const Joined> batch) override {
        Call call(&context, context.stream(), context.chip().multiprocessors);
        updates_.clear();
        for (const Joined& one : batch)
            updates_.push_back(static_cast<AdamWKernel*>(one.kernel)->bound(call, one.operands));
        adamw_all(call, updates_);
    }

private:
    /// Updates in place when outputs alias inputs; otherwise copies the inputs to the outputs first.
    Update bound(Call& call, std::span<void* const> t) const {
        Update u = update_;
        const size_t from[] = {0, 2, 3};
        for (size_t i = 0; i < 3; ++i) copy_dense(call, t[from[i]], t[inputs_ + i], n_ * 4);
        u.p = static_cast<float*>(t[inputs_]);
        u.m = static_cast<float*>(t[inputs_ + 1]);
        u.v = static_cast<float*>(t[inputs_ + 2]);
        u.g.data = t[1];
        u.lr = static_cast<const float*>(t[4]);
        u.scale = static_cast<const float*>(t[5]);
        u.step = static_cast<const float*>(t[6]);
        u.apply = inputs_ == 8 ? static_cast<const std::uint8_t*>(t[7]) : nullptr;
        return u;
    }

    Update update_{};
    i64 n_;
    size_t inputs_;
    std::vector<Update> updates_;  ///< reused, so that only the first launch allocates
};

}  // namespace

std::unique_ptr<Prepared> prepare_adamw(const Spec& spec) { return std::make_unique<AdamWKernel>(spec); }

}  // namespace orrery::kernels::cuda
