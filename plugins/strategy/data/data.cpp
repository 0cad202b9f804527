// Data parallelism: every rank has all params and a part of the batch. This file only marks the inputs; gradients are
// then partial over the axis, and propagation reduces them. scripts/orrery/strategies/data.lua gives the same marks.
#include "orrery/plugin.h"
#include "orrery/strategy.h"

namespace orrery {

namespace {

class Data : public Strategy {
public:
    Data(Config& options, Origin origin)
        : axis_(options.text("axis", "dp")),
          bucket_mib_(options.integer("bucket_mib", 25)),
          reduce_(options.text("reduce", "f32")),
          origin_(std::move(origin)) {
        if (origin_.who.empty()) origin_.who = "data";
        if (bucket_mib_ < 0)
            throw Error(options.where("bucket_mib"), "bucket_mib is " + std::to_string(bucket_mib_) +
                                                         "; give a number of MiB, or 0 to reduce each gradient alone");
        if (reduce_ != "f32" && reduce_ != "bf16")
            throw Error(options.where("reduce"), "strategy data: reduce is \"" + reduce_ +
                                                     "\"; gradients are sent as \"f32\", or as \"bf16\" in half the "
                                                     "bytes");
    }

    void annotate(Program& program, const Mesh& mesh) override {
        if (mesh.size(axis_) == 1) return;
        for (ValueId input : program.inputs())
            if (const auto dim = program.dim(input, "batch"))
                program.store(input, axis_, Placement::split(*dim), origin_);
        program.bucket(axis_, bucket_mib_ * 1024 * 1024, origin_);
        if (reduce_ == "bf16") program.reduce_as(axis_, DType::bf16, origin_);
    }

private:
    std::string axis_;
    int64_t bucket_mib_;
    std::string reduce_;
    Origin origin_;
};

void add(Registry& registry) {
    registry.add_strategy(
        "data", [](Config& options, const Origin& origin) { return std::make_unique<Data>(options, origin); });
}

}  // namespace

}  // namespace orrery

ORRERY_PLUGIN("strategy.data", "0.1", orrery::add);
