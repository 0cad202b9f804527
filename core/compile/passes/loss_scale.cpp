#include "compile/passes/loss_scale.h"

#include <string>

#include "ir/build.h"

namespace orrery {

void add_loss_scale(Program& program, const LossScale& scale, const Origin& origin) {
    Builder builder(program);
    const auto state = [&](const char* name, double first) {
        builder.state(none, name, {DType::f32, {}}, {{"kind", std::string("ones")}, {"scale", first}}, origin);
    };
    state("loss_scale", scale.initial);
    state("loss_scale.good", 0);
    state("loss_scale.steps", 0);
}

}  // namespace orrery
