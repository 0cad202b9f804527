// ZeRO (Rajbhandari et al. 2020): data parallelism with optimizer states, gradients and params split over the ranks.
// Hybrid: split over one axis and replicated over another.
#include <map>
#include <optional>

#include "orrery/plugin.h"
#include "orrery/strategy.h"

namespace orrery {

namespace {

class ZeroStrategy : public Strategy {
public:
    ZeroStrategy(Config& options, Origin origin)
        : axis_(options.text("axis", "dp")),
          replicate_(options.text("replicate", "")),
          stage_(options.integer("stage", 1)),
          bucket_mib_(options.integer("bucket_mib", 25)),
          reduce_(options.text("reduce", "f32")),
          origin_(std::move(origin)) {
        if (origin_.who.empty()) origin_.who = "zero";
        if (stage_ < 1 || stage_ > 3)
            throw Error(options.where("stage"),
                        "strategy zero: stage is " + std::to_string(stage_) +
                            "; there are 1 (optimizer states), 2 (gradients, too) and 3 (params, too)");
        if (replicate_ == axis_)
            throw Error(options.where("replicate"), "strategy zero: replicate is " + replicate_ +
                                                        ", the axis that it splits over; name another axis");
        if (bucket_mib_ < 0)
            throw Error(options.where("bucket_mib"), "bucket_mib is " + std::to_string(bucket_mib_) +
                                                         "; give a number of MiB, or 0 to send each alone");
        if (reduce_ != "f32" && reduce_ != "bf16")
            throw Error(options.where("reduce"), "strategy zero: reduce is \"" + reduce_ +
                                                     "\"; gradients are sent as \"f32\", or as \"bf16\" in half the "
                                                     "bytes");
        read_prefetch(options);
    }

    void annotate(Program& program, const Mesh& mesh) override {
        for (const std::string& axis : {replicate_, axis_}) {
            if (axis.empty() || mesh.size(axis) == 1) continue;
            for (ValueId input : program.inputs())
                if (const auto dim = program.dim(input, "batch"))
                    program.store(input, axis, Placement::split(*dim), origin_);
            program.bucket(axis, bucket_mib_ * 1024 * 1024, origin_);
            if (reduce_ == "bf16") program.reduce_as(axis, DType::bf16, origin_);
        }
        if (mesh.size(axis_) == 1) return;
        if (prefetch_) program.prefetch(axis_, *prefetch_, origin_);
        split_training(program, mesh);
    }

private:
    void read_prefetch(Config& options) {
        const int64_t layers = options.integer("prefetch", 0), mib = options.integer("prefetch_mib", 0);
        const bool by_layers = options.has("prefetch"), by_bytes = options.has("prefetch_mib");
        if (layers < 0)
            throw Error(options.where("prefetch"),
                        "strategy zero: prefetch is " + std::to_string(layers) +
                            "; give a number of layers, or 0 to gather where params are read");
        if (by_bytes && mib <= 0)
            throw Error(options.where("prefetch_mib"), "strategy zero: prefetch_mib is " + std::to_string(mib) +
                                                           "; give a number of MiB above 0, or prefetch = 0");
        if (by_layers && by_bytes)
            throw Error(options.where("prefetch_mib"),
                        "strategy zero: prefetch and prefetch_mib both say how far gathers run ahead; give one");
        if (!by_layers && !by_bytes) return;
        const char* const key = by_layers ? "prefetch" : "prefetch_mib";
        if (stage_ != 3)
            throw Error(options.where(key), "strategy zero: " + std::string(key) +
                                                " applies only to the gathers of stage 3; stage is " +
                                                std::to_string(stage_));
        prefetch_ = {layers, mib * 1024 * 1024};
    }

    /// Splits what training stores for each param. A param without a dim that the axis divides stays whole and is
    /// noted. Linear in the program's size.
    void split_training(Program& program, const Mesh& mesh) const {
        const int64_t n = mesh.size(axis_);
        const std::vector<bool> low = program.params_with_low_copies();
        std::map<ValueId, std::vector<ValueId>> states;
        for (size_t id = 0; id < program.values.size(); ++id)
            if (const Value& value = program.values[id]; value.role == Role::state && value.of != none)
                states[value.of].push_back(static_cast<ValueId>(id));
        const std::map<ValueId, ValueId> grads(program.grads().begin(), program.grads().end());
        for (ValueId param : program.params()) {
            const auto dim = program.first_dim_divisible_by(param, n, mesh);
            if (!dim) {
                program.note(param, "whole over " + axis_ + "=" + std::to_string(n) + ": no dim divides", origin_);
                continue;
            }
            const Placement part = Placement::split(*dim);
            // When ops read a low-precision copy, the f32 param itself is split and the copy gathered once a step.
            if (stage_ == 3 || low[static_cast<size_t>(param)]) {
                program.store(param, axis_, part, origin_);
                program.use(param, axis_, Placement::replicated(), origin_, stage_ == 3 ? Keep::fragment : Keep::step);
            }
            for (ValueId state : states[param]) program.store(state, axis_, part, origin_);
            if (const auto grad = grads.find(param); grad != grads.end())
                split_gradient(program, param, grad->second, part);
        }
    }

    void split_gradient(Program& program, ValueId param, ValueId grad, Placement part) const {
        if (stage_ == 1) {  // a sum over ranks until the micro-batches are done, then scattered once
            program.store(grad, axis_, Placement::partial(ReduceOp::sum), origin_, true);
            program.use(grad, axis_, part, origin_);
            return;
        }
        program.store(grad, axis_, part, origin_);
        // The terms are computed at both ends of the backward pass; scattering each would cost a message each.
        if (!program.grad_terms(param).empty())
            program.note(param,
                         "its gradient stays whole over " + axis_ +
                             " until the step's last micro-batch: it has several terms, and one message carries "
                             "their sum",
                         origin_);
    }

    std::string axis_, replicate_;
    int64_t stage_, bucket_mib_;
    std::string reduce_;
    std::optional<PrefetchDepth> prefetch_;
    Origin origin_;
};

void add(Registry& registry) {
    registry.add_strategy(
        "zero", [](Config& options, const Origin& origin) { return std::make_unique<ZeroStrategy>(options, origin); });
}

}  // namespace

}  // namespace orrery

ORRERY_PLUGIN("strategy.zero", "0.1", orrery::add);
