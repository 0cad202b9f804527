// The fused AdamW op, in place. Of one shape: p, m, v f32 and g f32 or bf16. Scalars: lr, scale, step f32; apply u8.
#include <fmt/format.h>

#include "ir/ops/common.h"

namespace orrery::ops {

namespace {

std::vector<Typed> infer_adamw(Infer& at) {
    for (size_t i : {size_t{2}, size_t{3}}) at.same_type(0, i);
    if (at.shape(1) != at.shape(0)) at.fail(fmt::format("shapes differ: {} and {}", at.show(0), at.show(1)));
    for (size_t i = 4; i < at.count(); ++i) at.expect_rank(i, 0, 0);
    return {at.typed(0), at.typed(2), at.typed(3)};
}

int64_t adamw_flops(const Program& program, const Op& op) { return 15 * program.value(op.inputs[0]).type.count(); }

Samples steps() {
    const TensorType p = f32({4, 9});
    const std::vector<std::optional<Draw>> draws{{}, {}, {}, Draw{0.1, 1}, Draw{0.1, 0.1}, Draw{0.5, 0.5}, Draw{3, 3}};
    const Attributes decay{{"decay", 0.1}};
    return {{.operands = {p, p, p, p, f32({}), f32({}), f32({})}, .attributes = decay, .draws = draws},
            {.operands = {p, p, p, p, f32({}), f32({}), f32({}), u8({})}, .attributes = decay, .draws = draws}};
}

}  // namespace

std::vector<OpDef> adamw_ops() {
    return {
        {.name = "adamw",
         .operands = {"p", "g", "m", "v", "lr", "scale", "step", "apply?"},
         .types = "s F s s s s s b? -> s s s",
         .attributes = {number("beta1", 0.9), number("beta2", 0.999), number("eps", 1e-8), number("decay", 0.0)},
         .infer = infer_adamw,
         .rule = elementwise_rule,
         .flops = adamw_flops,
         .in_place = {{0, 0}, {1, 2}, {2, 3}},
         .work = Work::once,
         .samples = steps},
    };
}

}  // namespace orrery::ops
