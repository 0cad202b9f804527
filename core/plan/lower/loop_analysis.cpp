#include "plan/lower/loop_analysis.h"

#include <algorithm>

#include "plan/lower/weight_gradients.h"

namespace orrery::lowering {

namespace {

/// Linear ops of one input that cost less once, on the sum over micro-batches, than on each contribution.
bool may_sink(const Program& program, const Op& op) {
    const OpDef& def = op_def(op.kind);
    if (op.inputs.size() != 1 || def.multiplies.empty()) return false;
    return !def.casts || program.value(op.inputs[0]).type.dtype == DType::f32;
}

/// As a mark asked for what redistributes a value; sums have a flag of that name.
bool lives_for_one_fragment(const Op& op) {
    const Attribute* const keep = op.attributes.find("keep");
    const auto* const text = keep ? std::get_if<std::string>(keep) : nullptr;
    return text && *text == "fragment";
}

}  // namespace

LoopAnalysis::LoopAnalysis(const Program& program_in, const Mesh& mesh_in, const StagePlacement& spread_in,
                           int64_t written_in)
    : program(program_in),
      mesh(mesh_in),
      spread(spread_in),
      micro_axis(mesh_in.sequential_axis().value_or(none)),
      micros(mesh_in.microbatches()),
      written(written_in),
      results(program_in.results),
      updates(program_in.updates) {
    ops.resize(program.ops.size());
    values.resize(program.values.size());
    for (const Op& op : program.ops) defs_.push_back(&op_def(op.kind));
    find_needed();
    find_readers();
    find_sections();
}

LoopAnalysis::LoopAnalysis(const LoopAnalysis& whole, int rank_in)
    : program(whole.program),
      mesh(whole.mesh),
      spread(whole.spread),
      rank(rank_in),
      micro_axis(whole.micro_axis),
      micros(whole.micros),
      written(whole.written),
      ops(whole.ops),
      defs_(whole.defs_) {
    values.resize(program.values.size());
    take_share();
    find_readers();
    find_types();
    find_instances();
    find_aliases();
    fold_transposes();
    find_sums();
}

Placement LoopAnalysis::over_micro(ValueId id) const {
    return micro_axis == none ? Placement::replicated() : program.value(id).layout.at(micro_axis);
}

AxisId LoopAnalysis::axis(const Op& op) const {
    const std::string name = op.attributes.text("axis");
    const std::optional<AxisId> axis = mesh.over(name);
    if (!axis) throw Error(op.origin, op.kind + " over axis '" + name + "', which the mesh " + mesh.text() + " lacks");
    return *axis;
}

int LoopAnalysis::instance(ValueId id, int64_t micro) const {
    const ValueRole& role = value(id);
    const bool once = micro < 0 || !role.per_micro;
    return role.first_instance + static_cast<int>(once ? (role.per_micro ? written : 0) : micro);
}

Ref LoopAnalysis::find(ValueId id, int64_t micro) const {
    Ref ref;
    while (true) {
        const ValueRole& role = value(id);
        if (role.alias != none && !role.swapped) {
            ref.offset += role.offset + (micro > 0 ? role.step * micro : 0);
            ref.step += micro >= 0 ? role.step : 0;
            id = role.alias;
        } else if (role.sum != none && role.sum != id) {
            id = role.sum;
        } else if (role.gathered && micro >= 0) {
            ref.offset += micro * role.type.bytes();
            ref.step += role.type.bytes();
            micro = -1;
        } else {
            ref.instance = instance(id, micro);
            ref.each = role.per_micro && micro >= 0;
            return ref;
        }
    }
}

std::vector<ValueId> LoopAnalysis::reads(OpId id) const {
    const auto sum = sums.find(id);
    if (sum != sums.end()) return sum->second;
    std::vector<ValueId> inputs = operands(id);
    for (ValueId& input : inputs)
        if (value(input).swapped) input = value(input).alias;
    return inputs;
}

void LoopAnalysis::find_needed() {
    std::vector<char> needed(values.size(), 0);
    for (const Result& result : program.results) needed[result.value] = 1;
    for (const Update& update : program.updates) needed[update.value] = 1;
    for (size_t i = program.ops.size(); i-- > 0;) {
        const Op& op = program.ops[i];
        const bool wanted =
            std::any_of(op.outputs.begin(), op.outputs.end(), [&](ValueId id) { return needed[id] != 0; });
        if (!wanted) continue;
        ops[i].section = Section::inside;  // anything but unused; find_sections decides
        for (ValueId input : op.inputs) needed[input] = 1;
    }
}

void LoopAnalysis::find_readers() {
    readers_.resize(values.size());
    for (const Result& result : results) ++readers_[result.value].ends;
    for (const Update& update : updates) ++readers_[update.value].ends;
    for (size_t i = 0; i < program.ops.size(); ++i) {
        if (ops[i].section == Section::unused) continue;
        for (ValueId input : operands(i)) readers_[input].ops.push_back(i);
    }
}

/// One op, its inputs being settled: it runs no earlier than they do. `late` values are complete after the loop.
void LoopAnalysis::settle(OpId id, std::vector<char>& late) {
    const Op& op = program.op(id);
    OpRole& role = ops[id];
    bool reads_late = false, reads_varying = false, makes_varying = false;
    for (ValueId input : op.inputs) {
        reads_late |= late[input] != 0;
        reads_varying |= over_micro(input).kind != Placement::Kind::replicate;
    }
    for (ValueId output : op.outputs) makes_varying |= over_micro(output).kind != Placement::Kind::replicate;
    const bool free = spread.axis != none && op.stage == none && op.phase != Phase::update;
    const bool transfers = is_transfer(def(id));
    const bool from_rest = transfers && program.value(op.inputs[0]).op == none;
    // A gradient goes home to its param once a step: no fragment of another stage waits for a W.
    const bool goes_home = transfers && role.weight;
    if (micros == 1 && (free || from_rest) && !reads_late) {
        role.section = Section::before;
    } else if (micros == 1) {
        const bool ends = reads_late || goes_home || op.phase == Phase::update;
        role.section = ends ? Section::after : Section::inside;
    } else if (makes_varying) {
        if (reads_late)
            throw Error(op.origin, op.kind +
                                       " runs for each micro-batch but reads a value that is complete only after "
                                       "the last one; use micro-batches = 1, or move it after the loop");
        role.section = Section::inside;
    } else if (reads_varying || reads_late) {
        role.section = Section::after;
    } else {
        // What reads a copy that lives for one fragment lives no longer.
        const bool fragment = std::any_of(op.inputs.begin(), op.inputs.end(), [&](ValueId input) {
            const OpId maker = program.value(input).op;
            return maker != none && ops[maker].section == Section::inside;
        });
        const bool kept = fragment || lives_for_one_fragment(op);
        role.section = kept ? Section::inside : Section::before;
    }
    if (op.phase != Phase::forward) role.kind = Fragment::Kind::backward;
    if (role.weight) role.kind = Fragment::Kind::weight;
    for (ValueId input : op.inputs)
        if (const OpId maker = program.value(input).op; maker != none) role.kind = std::max(role.kind, ops[maker].kind);
    for (ValueId output : op.outputs) late[output] = role.section == Section::after;
}

bool LoopAnalysis::only_after(const Op& op) const {
    return std::all_of(op.outputs.begin(), op.outputs.end(), [&](ValueId output) {
        const auto& reading = readers(output).ops;
        return std::all_of(reading.begin(), reading.end(),
                           [&](OpId reader) { return ops[reader].section == Section::after; });
    });
}

/// Consumers first: what only the end of the step reads runs there, collectives of gradients among them.
void LoopAnalysis::sink_and_delay() {
    for (size_t i = program.ops.size(); i-- > 0;) {
        const Op& op = program.ops[i];
        OpRole& role = ops[i];
        if (role.section == Section::unused || role.section == Section::after || !only_after(op)) continue;
        const bool invariant = role.section == Section::before;
        const bool reduction = micros == 1 && collective(op);
        const bool linear = micros > 1 && role.section == Section::inside && may_sink(program, op) &&
                            over_micro(op.inputs[0]).kind == Placement::Kind::partial;
        if (invariant || reduction || linear) role.section = Section::after;
    }
}

void LoopAnalysis::find_sections() {
    std::vector<char> late(values.size(), 0), needed(ops.size(), 0);
    for (size_t i = 0; i < ops.size(); ++i) needed[i] = ops[i].section != Section::unused;
    const std::vector<char> weights = weight_gradients(program, micro_axis, needed);
    for (size_t i = 0; i < ops.size(); ++i) ops[i].weight = weights[i] != 0;
    for (size_t i = 0; i < ops.size(); ++i)
        if (needed[i]) settle(i, late);
    sink_and_delay();
}

void LoopAnalysis::find_types() {
    for (size_t i = 0; i < values.size(); ++i) {
        if (!touched(i)) continue;
        const Value& v = program.values[i];
        ValueRole& role = values[i];
        role.type = {v.type.dtype, v.layout.splits().empty() ? v.type.shape : v.layout.local_shape(v.type.shape, mesh)};
        role.whole_bytes = role.type.bytes();
        if (over_micro(i).kind == Placement::Kind::split) role.whole_bytes *= micros;
    }
}

void LoopAnalysis::find_instances() {
    for (ValueId id = 0; id < std::ssize(values); ++id) {
        const Value& v = program.values[id];
        ValueRole& role = values[id];
        if (!touched(id)) continue;
        const Placement micro = over_micro(id);
        const bool looped = v.op != none && ops[v.op].section == Section::inside && micros > 1;
        bool inside = false, after = readers(id).ends > 0;
        for (OpId reader : readers(id).ops) (ops[reader].section == Section::after ? after : inside) = true;
        if (looped && micro.kind == Placement::Kind::partial) {
            role.accumulated = after;
            if (after && is_float(v.type.dtype) && size_of(v.type.dtype) < 4)
                throw Error(v.origin, "'" + v.name + "' " + v.type.text() + " is summed over micro-batches in " +
                                          std::string(name_of(v.type.dtype)) +
                                          "; cast it to f32 before it leaves the loop");
            role.per_micro = inside || !after;
        } else if (micro.kind == Placement::Kind::split && (looped || v.op == none)) {
            role.per_micro = true;
            role.gathered = after || v.op == none;
        } else if (looped) {
            role.per_micro = true;
            if (after) throw Error(v.origin, "value '" + v.name + "' is kept for one fragment but read after the loop");
        }
        role.first_instance = instances;
        const bool once = !role.per_micro || role.accumulated || role.gathered;
        instances += static_cast<int>((role.per_micro ? written : 0) + (once ? 1 : 0));
    }
}

}  // namespace orrery::lowering
