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
          codec_(options.text("codec", "none")),
          resume_(options.text("resume", "")),
          feedback_(options.flag("feedback", false)),
          origin_(std::move(origin)) {
        if (origin_.who.empty()) origin_.who = "islands";
        if (feedback_ && codec_ == "none")
            throw Error(options.where("feedback"),
                        "strategy islands: feedback without a codec; give one, as in codec = \"int4\"");
    }

    void annotate(Program& program, const Mesh& mesh) override {
        if (feedback_ && mesh.size(axis_) == 1)
            throw Error(origin_,
                        "strategy islands: feedback where nothing is sent, since the axis is of one rank; leave "
                        "feedback out");
        program.edge(axis_, std::nullopt, "islands", true, origin_);
        if (codec_ != "none") program.edge(axis_, std::nullopt, "codec", codec_, origin_);
        if (feedback_) program.edge(axis_, std::nullopt, "feedback", true, origin_);
        if (!resume_.empty()) program.edge(axis_, std::nullopt, "resume", resume_, origin_);
    }

private:
    std::string axis_, codec_, resume_;
    bool feedback_;
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
