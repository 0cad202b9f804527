// Data parallelism: every rank has all params and a part of the batch. This file only marks the inputs; gradients are
// then partial over the axes, and propagation reduces them. scripts/orrery/strategies/data.lua gives the same marks.
#include "orrery/axes.h"
#include "orrery/plugin.h"
#include "orrery/strategy.h"

namespace orrery {

namespace {

class Data : public Strategy {
public:
    Data(Config& options, Origin origin)
        : axes_(read_axes(options, "axis", "dp")),
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
        for (const std::string& axis : axes_) {
            if (mesh.size(axis) == 1) continue;
            split_batch(program, axis, origin_);
            program.bucket(axis, bucket_mib_ * 1024 * 1024, origin_);
            if (reduce_ == "bf16") program.reduce_as(axis, DType::bf16, origin_);
        }
    }

private:
    std::vector<std::string> axes_;
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
