// A strategy: every parameter of rank 2 rests with its rows split over one axis, where they divide.
#include "orrery/plugin.h"

namespace {

class Rows final : public orrery::Strategy {
public:
    Rows(std::string axis, orrery::Origin origin) : axis_(std::move(axis)), origin_(std::move(origin)) {}

    void annotate(orrery::Program& program, const orrery::Mesh& mesh) override {
        for (orrery::ValueId param : program.params()) {
            const orrery::Shape& shape = program.value(param).type.shape;
            if (shape.size() == 2 && shape[0] % mesh.size(axis_) == 0)
                program.store(param, axis_, orrery::Placement::split(0), origin_);
        }
    }

private:
    std::string axis_;
    orrery::Origin origin_;
};

void add(orrery::Registry& registry) {
    registry.add_strategy("rows", [](orrery::Config& options, const orrery::Origin& origin) {
        return std::make_unique<Rows>(options.text("axis", "tp"), origin);
    });
}

}  // namespace

ORRERY_PLUGIN("strategy.rows", "0.1", add);
