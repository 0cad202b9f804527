// Data parallelism: every rank has all params and a part of the batch. This file only marks the inputs; gradients are
// then partial over the axes, and propagation reduces them. scripts/orrery/strategies/data.lua gives the same marks.
#include <algorithm>

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

    void annotate(Program& program, const Mesh& mesh) override {
        const auto alone = [&](const std::string& axis) { return mesh.size(axis) == 1; };
        if (messages_.feedback && std::all_of(axes_.begin(), axes_.end(), alone))
            throw Error(origin_,
                        "strategy data: feedback where nothing is sent, since the axis is of one rank; leave "
                        "feedback out");
        messages_.mark(program, mesh, axes_, origin_);
    }

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
