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
          messages_(GradientMessages::read(options, "data")),
          origin_(std::move(origin)) {
        if (origin_.who.empty()) origin_.who = "data";
    }

    void annotate(Program& program, const Mesh& mesh) override { messages_.mark(program, mesh, axes_, origin_); }

private:
    std::vector<std::string> axes_;
    GradientMessages messages_;
    Origin origin_;
};

void add(Registry& registry) {
    registry.add_strategy(
        "data", [](Config& options, const Origin& origin) { return std::make_unique<Data>(options, origin); });
}

}  // namespace

}  // namespace orrery

ORRERY_PLUGIN("strategy.data", "0.1", orrery::add);
