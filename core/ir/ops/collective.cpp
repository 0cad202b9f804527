// Collectives, which propagation inserts. They change layouts but no global shapes, and have no kernel. Lowering
// inserts those between pipeline stages: `transfer`, from the op's stage to stage `to`, and `stage_sum`.
#include <fmt/format.h>

#include "ir/ops/common.h"
#include "orrery/plan.h"

namespace orrery::ops {

namespace {

std::vector<Typed> infer_moved(Infer& at) {
    for (std::string_view key : {"dim", "from", "to"}) {
        if (at.attributes.has(key)) at.dim_attribute(key, at.rank(0));
    }
    return {at.typed(0)};
}

OpDef collective(std::string_view name, Opcode instruction, std::vector<AttributeDef> attributes) {
    attributes.insert(attributes.begin(), required(text("axis")));
    return {.name = name,
            .operands = {"x"},
            .attributes = std::move(attributes),
            .infer = infer_moved,
            .rule = linear_rule,
            .flops = no_flops,
            .in_place = {{0, 0}},
            .collective = instruction};
}

/// The op that sums contributions of the ranks of the pipeline axis. Input i is from rank i. All ranks receive the sum.
OpDef stage_sum() {
    OpDef def = collective("stage_sum", Opcode::all_reduce, {});
    def.operands = {"x..."};
    def.in_place = {};
    def.between_stages = true;
    return def;
}

OpDef transfer() {
    OpDef def = collective("transfer", Opcode::send, {required(integer("to"))});
    def.between_stages = true;
    return def;
}

std::vector<Typed> infer_terms(Infer& at) {
    const int64_t members = at.attributes.integer("members");
    if (members < 1) at.fail(fmt::format("members = {} must be at least 1", members));
    Typed y = at.typed(0);
    y.type.shape.insert(y.type.shape.begin(), members);
    y.dims.insert(y.dims.begin(), "");
    return {y};
}

/// The op that makes the terms of a sum over the ranks of an axis a dim of its own, which the axis splits: x, partial
/// over it, becomes [members, ...]. It sends nothing and moves nothing; its rule is never asked for.
OpDef terms() {
    OpDef def = collective("terms", Opcode::kernel, {required(integer("members"))});
    def.infer = infer_terms;
    def.alias = true;
    def.moves = Moves::renames;
    return def;
}

AttributeDef dim(std::string_view name) { return required(integer(name)); }

}  // namespace

std::vector<OpDef> collective_ops() {
    OpDef shard = collective("shard", Opcode::kernel, {dim("dim")});
    shard.kernel = "slice";
    const AttributeDef reduce = text("op", {"sum", "max", "min"}, "sum");
    return {
        collective("all_reduce", Opcode::all_reduce, {reduce}),
        collective("all_gather", Opcode::all_gather, {dim("dim")}),
        collective("reduce_scatter", Opcode::reduce_scatter, {dim("dim"), reduce}),
        // Over a joined axis the layouts of its input and output say from which dim to which each axis moves.
        collective("all_to_all", Opcode::all_to_all, {integer("from"), integer("to")}),
        shard,
        terms(),
        transfer(),
        stage_sum(),
    };
}

}  // namespace orrery::ops
