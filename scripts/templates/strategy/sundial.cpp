// The strategy sundial: each matrix of the model rests with one dim split over an axis of the mesh, and is gathered
// where it is read. Change annotate(): marks are all that a strategy writes, collectives are derived from them.
#include "orrery/plugin.h"

namespace {

using orrery::Placement;

class Sundial final : public orrery::Strategy {
public:
    Sundial(orrery::Config& options, orrery::Origin origin)
        : axis_(options.text("axis", "dp")), origin_(std::move(origin)) {
        if (origin_.who.empty()) origin_.who = "sundial";
    }

    /// The same on every rank, whatever their number: read the program and the mesh, nothing else.
    void annotate(orrery::Program& program, const orrery::Mesh& mesh) override {
        const int64_t ranks = mesh.size(axis_);
        if (ranks == 1) return;
        for (orrery::ValueId input : program.inputs())
            if (const auto batch = program.dim(input, "batch"))
                program.store(input, axis_, Placement::split(*batch), origin_);
        for (orrery::ValueId param : program.params()) {
            const orrery::Shape& shape = program.value(param).type.shape;
            if (shape.size() < 2 || shape[0] % ranks != 0) continue;
            program.store(param, axis_, Placement::split(0), origin_);
            program.use(param, axis_, Placement::replicated(), origin_);
        }
    }

private:
    std::string axis_;
    orrery::Origin origin_;
};

void add(orrery::Registry& registry) {
    registry.add_strategy("sundial", [](orrery::Config& options, const orrery::Origin& origin) {
        return std::make_unique<Sundial>(options, origin);
    });
}

}  // namespace

ORRERY_PLUGIN("strategy.sundial", "0.1", add);
