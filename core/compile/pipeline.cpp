#include "compile/pipeline.h"

#include <algorithm>
#include <optional>

#include "compile/passes/bucket.h"
#include "compile/passes/code_errors.h"
#include "compile/passes/differentiate.h"
#include "compile/passes/encode_edges.h"
#include "compile/passes/fuse.h"
#include "compile/passes/join_axes.h"
#include "compile/passes/precision.h"
#include "compile/passes/prune.h"
#include "compile/passes/recompute.h"
#include "compile/passes/status_word.h"
#include "ir/check_program.h"
#include "layout/stages.h"
#include "layout/token_order.h"
#include "plan/check/check.h"

namespace orrery {
namespace {

constexpr unsigned bit(ProgramRole role) { return static_cast<unsigned>(role); }
constexpr unsigned train = bit(ProgramRole::train), evaluate = bit(ProgramRole::evaluate);
constexpr unsigned logits = bit(ProgramRole::logits), update = bit(ProgramRole::update);
constexpr unsigned all = train | evaluate | logits | update;

void record(Program& p, const PassInput& in) {
    const ProgramRole role = in.entry.role;
    const bool added = in.entry.added >= 0;
    ProgramEntry entry = in.entry;
    if (role == ProgramRole::train) entry.batch /= in.recipe->islands.count;
    p = added ? in.recipe->added[entry.added].forward(entry.batch) : in.recipe->forward(entry);
    p.name = in.recipe->name;
    if (added)
        p.name += "." + in.recipe->added[in.entry.added].name;
    else if (in.entry.also >= 0)
        p.name += "." + in.recipe->also[in.entry.also].name;
    else if (role != ProgramRole::train)
        p.name += role == ProgramRole::evaluate ? ".eval" : ".logits";
}

void add_loss_scale(Program& p, const PassInput& in) {
    if (in.recipe->loss_scale) orrery::add_loss_scale(p, *in.recipe->loss_scale, in.recipe->train_origin);
}

void differentiate(Program& p, const PassInput& in) {
    const ValueId seed = in.recipe->loss_scale ? p.find("loss_scale").value() : none;
    orrery::differentiate(p, *p.result("loss_sum"), seed);
}

void split_batch(Program& p, const PassInput& in) {
    if (in.microbatches > 1) p.microbatches(in.microbatches, in.recipe->train_origin);
}

void add_update(Program& p, const PassInput& in) {
    const int also = in.entry.also;
    const Islands& islands = in.recipe->islands;  // marked now for functions that read update:island_count
    if (islands.any()) p.edge(islands.axis, std::nullopt, islands_option, true, islands.origin);
    p = (also < 0 ? in.recipe->update : in.recipe->also[also].update)(std::move(p));
}

void mark(Program& p, const PassInput& in) {
    for (const AskedStrategy& asked : in.recipe->strategies) asked.strategy->annotate(p, *in.mesh);
}

/// Marks inputs as replicated over every axis but that of the pipeline, where only ranks that read an input have it.
void mark_inputs_whole(Program& p, const PassInput& in, const std::string& pipeline) {
    for (const ValueId input : p.inputs())
        for (const Axis& axis : in.mesh->axes())
            if (axis.name != pipeline) p.store(input, axis.name, Placement::replicated(), in.recipe->train_origin);
}

/// Annotates a program. Inputs stay unmarked in the logits program (batch 1), and are replicated if it is `whole`.
void annotate(Program& p, const PassInput& in) {
    const bool logits_alone = in.entry.role == ProgramRole::logits;
    if (!logits_alone && !in.entry.whole) return mark(p, in);
    Program marked = p;
    mark(marked, in);
    if (!logits_alone) {
        mark_inputs_whole(p, in, marked.pipeline().axis);  // before other marks, because the first one counts
        return mark(p, in);
    }
    for (const Mark& mark : marked.marks()) {
        if (marked.value(mark.value).role == Role::input) continue;
        if (mark.what == Mark::What::store)
            p.store(mark.value, mark.axis, mark.placement, mark.origin, mark.optional);
        else
            p.use(mark.value, mark.axis, mark.placement, mark.origin, mark.keep, mark.optional);
    }
}

bool has_order(const Program& p, const PassInput&) { return !p.axes_with("order").empty(); }

bool has_islands(const Program& p, const PassInput&) { return !p.axes_with(islands_option).empty(); }

bool recomputes(const Program& p, const PassInput&) {
    const auto& marks = p.scope_marks();
    return std::any_of(marks.begin(), marks.end(), [](const ScopeMark& mark) { return mark.recompute; });
}

bool has_stages(const Program& p, const PassInput& in) {
    // keep_update has set the stages of a program without a forward pass
    const bool known = std::ranges::any_of(p.values, [](const Value& value) { return value.stage != none; });
    return recomputes(p, in) || (!known && stage_count(p, *in.mesh) > 1);
}

Program propagate(const Program& p, const PassInput& in) {
    return orrery::propagate(p, *in.mesh, in.options->redistribution);
}

bool sends_codes(const Program& p, const PassInput& in) { return has_codec(p, *in.mesh); }

bool feeds_back(const Program& p, const PassInput&) { return !p.axes_with("feedback").empty(); }

bool keeps_factors(const Program& p, const PassInput&) { return has_factors(p); }

bool may_join(const Program&, const PassInput& in) { return in.options->transports.size() > 1; }

void join_axes(Program& p, const PassInput& in) { orrery::join_axes(p, *in.mesh, carriers_of(*in.options)); }

void add_status(Program& p, const PassInput& in) { orrery::add_status(p, *in.mesh, carriers_of(*in.options)); }

bool has_status(const Program&, const PassInput& in) { return in.options->status_word && in.mesh->ranks() > 1; }

bool has_f8(const Program& p, const PassInput&) {
    return std::any_of(p.ops.begin(), p.ops.end(), [](const Op& op) { return op.attributes.flag("f8"); });
}

void fuse(Program& p, const PassInput& in) { p = fuse_for(std::move(p), *in.mesh, in.options->runs); }

using In = const PassInput&;

/// All passes in order. After them, `lower` makes a plan and `prove` proves it.
const Pass list[] = {
    {PassPart::record, all, "record", record},
    {PassPart::record, logits, "keep_logits", [](Program& p, In) { p = keep_logits(p); }},
    {PassPart::record, all, "set_precision", [](Program& p, In in) { set_precision(p, in.recipe->precision); }},
    {PassPart::record, train, "add_loss_scale", add_loss_scale},
    {PassPart::record, train, "differentiate", differentiate},
    {PassPart::record, train | evaluate, "split_batch", split_batch},
    {PassPart::record, train, "add_update", add_update},
    {PassPart::mark, all, "annotate", annotate},
    {PassPart::mark, all, "check_islands", [](Program& p, In) { check_islands(p); }, nullptr, has_islands},
    {PassPart::mark, update, "keep_update", [](Program& p, In in) { p = keep_update(p, *in.mesh); }},
    {PassPart::mark, train, "add_errors", [](Program& p, In in) { add_errors(p, *in.mesh); }, nullptr, feeds_back},
    {PassPart::mark, train, "add_factors", [](Program& p, In in) { add_factors(p, *in.mesh); }, nullptr, keeps_factors},
    {PassPart::mark, all, "check_token_order", [](Program& p, In in) { check_token_order(p, *in.mesh); }, nullptr,
     has_order},
    // assign_stages comes before recompute, since a value is recomputed on its own stage.
    {PassPart::distribute, all, "assign_stages", [](Program& p, In in) { assign_stages(p, *in.mesh); }, nullptr,
     has_stages},
    {PassPart::distribute, all, "recompute", nullptr, [](const Program& p, In) { return recompute(p); }, recomputes},
    {PassPart::distribute, all, "propagate", nullptr, propagate},
    {PassPart::distribute, all, "encode_edges",
     [](Program& p, In in) { encode_edges(p, *in.mesh, in.options->schedule); }, nullptr, sends_codes},
    {PassPart::distribute, all, "join_axes", join_axes, nullptr, may_join},
    {PassPart::distribute, all, "bucket_collectives", [](Program& p, In in) { bucket_collectives(p, *in.mesh); }},
    {PassPart::distribute, all, "add_status", add_status, nullptr, has_status},
    {PassPart::fuse, all, "quantize_products", [](Program& p, In in) { quantize_products(p, *in.mesh); }, nullptr,
     has_f8},
    {PassPart::fuse, all, "fuse", fuse},
};

}  // namespace

std::span<const Pass> passes() { return list; }

AxisCarriers carriers_of(const CompileOptions& options) {
    AxisCarriers carriers{options.transports, {}};
    for (const auto& [axis, tables] : options.collectives)
        for (const ChunkTable& table : tables)
            if (table.collective == Opcode::all_reduce) carriers.tables.insert(axis);
    return carriers;
}

namespace {

/// Runs the passes of a part on `given`. `own`: a copy of it that may be changed; nullopt: copy when needed.
Program run(PassPart part, const Program& given, std::optional<Program> own, const PassInput& in) {
    const PassLook* look = in.recipe ? &in.recipe->look : &in.options->look;
    const bool laid_out = part == PassPart::distribute || part == PassPart::fuse;
    for (const Pass& pass : list) {
        if (pass.part != part || (pass.roles & bit(in.entry.role)) == 0) continue;
        const Program& now = own ? *own : given;
        if (!pass.needed || pass.needed(now, in)) {
            if (pass.make)
                own = pass.make(now, in);
            else
                pass.run(own ? *own : own.emplace(given), in);
        }
        const Program& left = own ? *own : given;
        if (part == PassPart::record && left.ops.empty()) break;
        if (*look) (*look)(pass.name, left, laid_out ? in.mesh : nullptr);
    }
    return own ? std::move(*own) : given;
}

}  // namespace

Program run_passes(PassPart part, const Program& program, const PassInput& in) {
    return run(part, program, std::nullopt, in);
}

Program run_passes(PassPart part, Program&& program, const PassInput& in) {
    return run(part, {}, std::move(program), in);
}

Program distribute(const Program& annotated, const Mesh& mesh, const CompileOptions& options) {
    return run_passes(PassPart::distribute, annotated, {.mesh = &mesh, .options = &options});
}

Plan plan_of(Program distributed, const Mesh& mesh, Persistent& persistent, const CompileOptions& options) {
    Program fused = run_passes(PassPart::fuse, std::move(distributed), {.mesh = &mesh, .options = &options});
    check_program(fused);
    return lower(std::move(fused), mesh, persistent, options);
}

void prove(const Plan& plan, const CompileOptions& options) {
    check(plan, options.contracts, options.memory_bytes);
    check_collective_tables(plan, options.collectives, options.contracts);
}

}  // namespace orrery
