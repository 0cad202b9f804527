// ZeRO: data parallelism whose optimizer states, gradients and params are split over the ranks. Hybrid: split over one
// axis and repeated over another. scripts/orrery/strategies/zero.lua gives the same marks.
#include "orrery/plugin.h"
#include "orrery/strategy.h"

namespace orrery {

namespace {

class ZeroStrategy : public Strategy {
public:
    ZeroStrategy(Config& options, Origin origin)
        : replicate_(options.text("replicate", "")),
          bucket_mib_(options.integer("bucket_mib", 25)),
          origin_(std::move(origin)) {
        if (origin_.who.empty()) origin_.who = "zero";
        zero_.axis = options.text("axis", "dp");
        const int64_t stage = options.integer("stage", 1);
        if (stage < 1 || stage > 3)
            throw Error(options.where("stage"),
                        "strategy zero: stage is " + std::to_string(stage) +
                            "; there are 1 (optimizer states), 2 (gradients, too) and 3 (params, too)");
        zero_.stage = static_cast<int>(stage);
        if (replicate_ == zero_.axis)
            throw Error(options.where("replicate"), "strategy zero: replicate is " + replicate_ +
                                                        ", the axis that it splits over; name another axis");
        if (bucket_mib_ < 0)
            throw Error(options.where("bucket_mib"), "bucket_mib is " + std::to_string(bucket_mib_) +
                                                         "; give a number of MiB, or 0 to send each alone");
    }

    void annotate(Program& program, const Mesh& mesh) override {
        for (const std::string& axis : {replicate_, zero_.axis}) {
            if (axis.empty() || mesh.size(axis) == 1) continue;
            for (ValueId input : program.inputs())
                if (const auto dim = program.dim(input, "batch"))
                    program.store(input, axis, Placement::split(*dim), origin_);
            program.bucket(axis, bucket_mib_ * 1024 * 1024, origin_);
        }
        mark_zero(program, mesh, zero_, origin_);
    }

private:
    Zero zero_;
    std::string replicate_;
    int64_t bucket_mib_;
    Origin origin_;
};

void add(Registry& registry) {
    registry.add_strategy(
        "zero", [](Config& options, const Origin& origin) { return std::make_unique<ZeroStrategy>(options, origin); });
}

}  // namespace

}  // namespace orrery

ORRERY_PLUGIN("strategy.zero", "0.1", orrery::add);
