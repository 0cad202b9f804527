// ZeRO (Rajbhandari et al. 2020): data parallelism with optimizer states, gradients and params split over the ranks.
// Hybrid: split over some axes and replicated over another.
#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "orrery/axes.h"
#include "orrery/plugin.h"
#include "orrery/strategy.h"

namespace orrery {

namespace {

class ZeroStrategy : public Strategy {
public:
    ZeroStrategy(Config& options, Origin origin)
        : axes_(read_axes(options, "axis", "dp")),
          replicate_(options.text("replicate", "")),
          stage_(options.integer("stage", 1)),
          messages_(GradientMessages::read(options, "zero")),
          origin_(std::move(origin)) {
        if (origin_.who.empty()) origin_.who = "zero";
        if (stage_ < 1 || stage_ > 3)
            throw Error(options.where("stage"),
                        "strategy zero: stage is " + std::to_string(stage_) +
                            "; there are 1 (optimizer states), 2 (gradients, too) and 3 (params, too)");
        if (std::find(axes_.begin(), axes_.end(), replicate_) != axes_.end())
            throw Error(options.where("replicate"), "strategy zero: replicate is " + replicate_ +
                                                        ", an axis that it splits over; name another axis");
        read_prefetch(options);
    }

    void annotate(Program& program, const Mesh& mesh) override {
        std::vector<std::string> sent = axes_;
        if (!replicate_.empty()) sent.insert(sent.begin(), replicate_);
        messages_.mark(program, mesh, sent, origin_);
        std::vector<std::string> axes = axes_;
        std::erase_if(axes, [&](const std::string& axis) { return mesh.size(axis) == 1; });
        for (const std::string& axis : axes)
            if (prefetch_) program.prefetch(axis, *prefetch_, origin_);
        if (!axes.empty()) split_training(program, mesh, axes);
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

    using Axes = std::vector<std::string>;

    /// Splits what training stores for each param over the axes, except those over which an earlier mark has split it.
    /// An axis that divides no dim in addition to those before it is noted, and the param stays whole over it. Linear
    /// in the program's size.
    void split_training(Program& program, const Mesh& mesh, const Axes& axes) const {
        const std::vector<bool> low = program.params_with_low_copies();
        std::map<ValueId, std::vector<ValueId>> states;
        for (size_t id = 0; id < program.values.size(); ++id)
            if (const Value& value = program.values[id]; value.role == Role::state && value.of != none)
                states[value.of].push_back(static_cast<ValueId>(id));
        const std::map<ValueId, ValueId> grads(program.grads().begin(), program.grads().end());
        std::set<std::pair<ValueId, std::string>> taken;
        for (const Mark& mark : program.marks())
            if (mark.what == Mark::What::store && mark.placement.kind == Placement::Kind::split)
                taken.emplace(mark.value, mark.axis);
        for (ValueId param : program.params()) {
            Axes own;
            int64_t parts = 1;
            std::optional<int> dim;  // the first that all of `own` divide together
            for (const std::string& axis : axes) {
                if (taken.count({param, axis})) continue;
                const int64_t n = mesh.size(axis);
                if (const auto found = program.first_dim_divisible_by(param, parts * n, mesh)) {
                    dim = found;
                    parts *= n;
                    own.push_back(axis);
                } else {
                    program.note(param, "whole over " + axis + "=" + std::to_string(n) + ": no dim divides", origin_);
                }
            }
            if (!dim) continue;
            const Placement part = Placement::split(*dim);
            for (const std::string& axis : own) {
                // When ops read a low-precision copy, the f32 param itself is split and the copy gathered once a step.
                if (stage_ == 3 || low[static_cast<size_t>(param)]) {
                    program.store(param, axis, part, origin_);
                    program.use(param, axis, Placement::replicated(), origin_,
                                stage_ == 3 ? Keep::fragment : Keep::step);
                }
                for (ValueId state : states[param]) program.store(state, axis, part, origin_);
            }
            if (const auto grad = grads.find(param); grad != grads.end())
                split_gradient(program, param, grad->second, own, part);
        }
    }

    void split_gradient(Program& program, ValueId param, ValueId grad, const Axes& axes, Placement part) const {
        std::string all;
        for (const std::string& axis : axes) {
            all += (all.empty() ? "" : " and ") + axis;
            if (stage_ > 1) {
                program.store(grad, axis, part, origin_);
                continue;
            }  // a sum over ranks until the micro-batches are done, then scattered once
            program.store(grad, axis, Placement::partial(ReduceOp::sum), origin_, true);
            program.use(grad, axis, part, origin_);
        }
        // The terms are computed at both ends of the backward pass; scattering each would cost a message each.
        if (stage_ > 1 && !program.grad_terms(param).empty())
            program.note(param,
                         "its gradient stays whole over " + all +
                             " until the step's last micro-batch: it has several terms, and one message carries "
                             "their sum",
                         origin_);
    }

    std::vector<std::string> axes_;
    std::string replicate_;
    int64_t stage_;
    GradientMessages messages_;
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
