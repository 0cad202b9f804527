// Islands: the members of an axis have params and states of their own, and exchange nothing in a step. This file only
// marks the axis: compile/islands makes the programs.
#include <optional>

#include "orrery/plugin.h"
#include "orrery/strategy.h"

namespace orrery {

namespace {

class IslandsStrategy : public Strategy {
public:
    IslandsStrategy(Config& options, Origin origin)
        : axis_(options.text("axis", "site")),
          bucket_mib_(options.integer("bucket_mib", 25)),
          origin_(std::move(origin)) {
        if (origin_.who.empty()) origin_.who = "islands";
        if (bucket_mib_ < 0)
            throw Error(options.where("bucket_mib"), "strategy islands: bucket_mib is " + std::to_string(bucket_mib_) +
                                                         "; give a size in MiB, or 0 for one message per array");
    }

    void annotate(Program& program, const Mesh&) override {
        program.edge(axis_, std::nullopt, "islands", true, origin_);
        program.edge(axis_, std::nullopt, "bucket", bucket_mib_ * 1024 * 1024, origin_);
    }

private:
    std::string axis_;
    int64_t bucket_mib_;
    Origin origin_;
};

void add(Registry& registry) {
    registry.add_strategy("islands", [](Config& options, const Origin& origin) {
        return std::make_unique<IslandsStrategy>(options, origin);
    });
}

}  // namespace

}  // namespace orrery

ORRERY_PLUGIN("strategy.islands", "0.1", orrery::add);
