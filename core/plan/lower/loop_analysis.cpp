#include "plan/lower/loop_analysis.h"

#include <algorithm>

#include "plan/lower/weight_gradients.h"

namespace orrery::lowering {

namespace {

/// Whether a mark of a strategy wants a gathered value discarded after each fragment (keep = "fragment").
bool lives_for_one_fragment(const Op& op) {
    const Attribute* const keep = op.attributes.find("keep");
    const auto* const text = keep ? std::get_if<std::string>(keep) : nullptr;
    return text && *text == "fragment";
}

/// Whether a block of `dim` is contiguous: all dims before it have size 1.
bool outermost(const Shape& shape, int dim) {
    return std::all_of(shape.begin(), shape.begin() + dim, [](int64_t size) { return size == 1; });
}

int64_t bytes_per_index(const TensorType& type, int dim) {
    int64_t bytes = size_of(type.dtype);
    for (size_t d = dim + 1; d < type.shape.size(); ++d) bytes *= type.shape[d];
    return bytes;
}

bool swaps_last_two(const Op& op) {
    const std::vector<int64_t> perm = op.attributes.integers("perm");
    const size_t n = perm.size();
    if (n < 2) return false;
    for (size_t i = 0; i + 2 < n; ++i)
        if (perm[i] != static_cast<int64_t>(i)) return false;
    return perm[n - 2] == static_cast<int64_t>(n - 1) && perm[n - 1] == static_cast<int64_t>(n - 2);
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
        ops[i].section = Section::inside;  // needed; find_sections decides in which section
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

/// Chooses when an op runs (Section); its inputs must have theirs. `late`: by value, complete only after the loop.
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
    // The gradient of a param goes to its stage once per step: no fragment there waits for a W fragment.
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

/// Whether the op is linear in its first input, and cheaper on the sum over micro-batches than on each term. A second
/// input is a scalar that does not depend on the micro-batch, such as a loss scale.
bool LoopAnalysis::may_sink(const Op& op) const {
    const std::vector<int>& factors = def(op).multiplies;
    if (op.inputs.size() > 2 || std::find(factors.begin(), factors.end(), 0) == factors.end()) return false;
    if (over_micro(op.inputs[0]).kind != Placement::Kind::partial) return false;
    if (op.inputs.size() == 2) {
        const Value& scalar = program.value(op.inputs[1]);
        return scalar.type.shape.empty() && scalar.op == none && over_micro(op.inputs[1]) == Placement::replicated();
    }
    return !def(op).casts || program.value(op.inputs[0]).type.dtype == DType::f32;
}

/// Moves ops that only ops after the loop read, such as collectives of gradients, after the loop.
void LoopAnalysis::sink_and_delay() {
    for (size_t i = program.ops.size(); i-- > 0;) {
        const Op& op = program.ops[i];
        OpRole& role = ops[i];
        if (role.section == Section::unused || role.section == Section::after || !only_after(op)) continue;
        const bool invariant = role.section == Section::before;
        const bool reduction = micros == 1 && collective(op);
        const bool linear = micros > 1 && role.section == Section::inside && may_sink(op);
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

bool LoopAnalysis::sends(OpId id) const {
    const Op& op = program.op(id);
    return spread.axis != none && is_transfer(def(id)) && spread.rank_of[op.stage] == rank;
}

/// Whether this rank runs the op, or one end of a transfer. An op without a stage is of every rank that needs it.
bool LoopAnalysis::mine(const Op& op) const {
    if (spread.axis == none || op.stage == none) return true;
    if (spread.rank_of[op.stage] == rank) return true;
    return is_transfer(def(op)) && spread.rank_of[op.attributes.integer("to")] == rank;
}

int LoopAnalysis::chunk_of(OpId id) const {
    const Op& op = program.op(id);
    if (spread.axis == none || op.stage == none) return 0;
    const bool receives = is_transfer(def(id)) && !sends(id);
    const int stage = receives ? static_cast<int>(op.attributes.integer("to")) : op.stage;
    const auto& own = spread.stages[rank];
    return static_cast<int>(std::find(own.begin(), own.end(), stage) - own.begin());
}

/// The values that this rank reads for an op: none to receive, one of those of a sum over stages.
std::vector<ValueId> LoopAnalysis::operands(OpId id) const {
    const Op& op = program.op(id);
    if (spread.axis == none || rank == none) return op.inputs;
    if (is_transfer(def(id)) && !sends(id)) return {};
    if (is_stage_sum(def(id))) return {op.inputs[rank]};
    return op.inputs;
}

/// Selects the ops of this rank: those of its stages, and ops without a stage that make inputs of these.
void LoopAnalysis::take_share() {
    const auto here = [&](ValueId id) {
        const int at = spread.at[id];
        return at == none || at == rank;
    };
    for (const Result& result : program.results)
        if (here(result.value)) results.push_back(result);
    for (const Update& update : program.updates)
        if (here(update.target)) updates.push_back(update);
    used_.assign(values.size(), 0);
    auto use = [&](ValueId id) { used_[id] = 1; };
    for (const Result& result : results) use(result.value);
    for (const Update& update : updates) {
        use(update.value);
        use(update.target);
    }
    for (size_t i = ops.size(); i-- > 0;) {
        const Op& op = program.ops[i];
        const bool wanted =
            std::any_of(op.outputs.begin(), op.outputs.end(), [&](ValueId id) { return used_[id] != 0; });
        const bool free = spread.axis != none && op.stage == none && !is_stage_sum(def(op));
        if (!mine(op) || (free && !wanted)) ops[i].section = Section::unused;
        if (ops[i].section == Section::unused) continue;
        for (ValueId input : operands(i)) use(input);
        for (ValueId output : makes(i)) use(output);
    }
}

bool LoopAnalysis::touched(ValueId id) const {
    if (spread.axis == none || used_[id]) return true;
    const Value& v = program.value(id);
    if (v.role == Role::temporary || v.role == Role::input) return false;
    return spread.at[id] == rank;
}

// Ops that need no instruction: reshapes, outermost slices, transposes done by matmuls, sums made in place.

void LoopAnalysis::alias_op(const Op& op, OpRole& role) {
    const ValueId in = op.inputs[0], out = op.outputs[0];
    ValueRole& to = value(out);
    const ValueRole& from = value(in);
    // A contribution to a sum must be moved, and a gathered value has its own place, so neither can be an alias.
    if (to.accumulated || to.gathered) return;
    const OpDef& def = this->def(op);
    const bool over_micro_axis = def.collective && micro_axis != none && axis(op) == micro_axis;
    const auto over_micros = [&](Opcode what) { return over_micro_axis && def.collective == what; };
    if (over_micros(Opcode::all_reduce)) {
        to.alias = in;
    } else if (over_micros(Opcode::all_gather)) {
        if (static_cast<int64_t>(over_micro(in).dim) != op.attributes.integer("dim")) return;
        to.alias = in;
    } else if (over_micros(Opcode::kernel)) {
        const int dim = static_cast<int>(op.attributes.integer("dim"));
        if (!outermost(from.type.shape, dim)) return;
        to.alias = in;
        to.step = to.type.bytes();
    } else if (def.alias) {
        to.alias = in;
    } else if (def.moves == Moves::cuts) {
        const int dim = static_cast<int>(op.attributes.integer("dim"));
        if (!outermost(from.type.shape, dim)) return;
        to.alias = in;
        to.offset = op.attributes.integer("start") * bytes_per_index(from.type, dim);
    } else {
        return;
    }
    role.absorbed = true;
}

void LoopAnalysis::find_aliases() {
    for (size_t i = 0; i < values.size(); ++i) {
        const ValueRole& role = values[i];
        if (!role.gathered) continue;
        const int dim = over_micro(i).dim;
        if (outermost(role.type.shape, dim)) continue;
        const Value& v = program.values[i];
        throw Error(v.origin, "'" + v.name + "' " + v.type.text() + " is split in micro-batches along dim " +
                                  std::to_string(dim) + "; put the batch first, so that a micro-batch is one block");
    }
    for (size_t i = 0; i < ops.size(); ++i)
        if (ops[i].section != Section::unused && !program.ops[i].inputs.empty()) alias_op(program.ops[i], ops[i]);
}

void LoopAnalysis::fold_transposes() {
    for (size_t i = 0; i < ops.size(); ++i) {
        const Op& op = program.ops[i];
        if (ops[i].section == Section::unused || def(op).moves != Moves::permutes || !swaps_last_two(op)) continue;
        const ValueId out = op.outputs[0];
        ValueRole& role = value(out);
        const Readers& reading = readers(out);
        if (reading.ends > 0 || role.accumulated || role.gathered || value(op.inputs[0]).swapped) continue;
        const bool all_swap = std::all_of(reading.ops.begin(), reading.ops.end(), [&](OpId reader) {
            const Op& m = program.op(reader);
            const auto& swaps = def(m).swaps;
            if (swaps.empty()) return false;
            // A matmul with a 2-dim right operand flattens its left one, so it must read that in stored order.
            const bool left = m.inputs[0] == out && program.value(m.inputs[1]).type.shape.size() == 2 &&
                              program.value(out).type.shape.size() > 2;
            const auto unswapped = m.inputs.begin() + swaps.size();
            return !left && std::find(unswapped, m.inputs.end(), out) == m.inputs.end();
        });
        // Matmuls must be in the section of the transpose, so that they find the instance of their own micro-batch.
        const bool same_section = std::all_of(reading.ops.begin(), reading.ops.end(), [&](OpId reader) {
            return ops[reader].section == ops[i].section || !value(op.inputs[0]).per_micro;
        });
        if (!all_swap || !same_section || value(op.inputs[0]).accumulated) continue;
        role.swapped = true;
        role.alias = op.inputs[0];
        ops[i].absorbed = true;
    }
}

/// Collects the terms of operand `leaf` of sum `root`: itself, or its own terms if it is a sum that only `root` reads.
bool LoopAnalysis::joins(OpId root, ValueId leaf, std::vector<ValueId>& leaves) {
    const Value& v = program.value(leaf);
    const ValueId total_id = program.op(root).outputs[0];
    const Value& total = program.value(total_id);
    if (value(leaf).type != value(total_id).type) return false;
    const Readers& reading = readers(leaf);
    const bool inner = v.op != none && is_sum(def(program.op(v.op))) && reading.ops.size() == 1 && reading.ends == 0 &&
                       ops[v.op].section == ops[root].section && v.layout == total.layout;
    if (!inner) {
        leaves.push_back(leaf);
        return true;
    }
    const Op& op = program.op(v.op);
    const size_t before = leaves.size();
    if (joins(root, op.inputs[0], leaves) && joins(root, op.inputs[1], leaves)) return true;
    leaves.resize(before);
    leaves.push_back(leaf);
    return true;
}

/// Lets kernels add terms of a sum in its place, without additions: the first kernel writes, the others accumulate.
void LoopAnalysis::plan_sum(OpId root, std::vector<ValueId> leaves) {
    const ValueId total = program.op(root).outputs[0];
    if (value(total).per_micro && value(total).accumulated) return;
    std::stable_sort(leaves.begin(), leaves.end(),
                     [&](ValueId a, ValueId b) { return program.value(a).op < program.value(b).op; });
    std::vector<ValueId> direct, rest;
    int accumulating = 0;
    for (ValueId leaf : leaves) {
        const Value& v = program.value(leaf);
        const Readers& reading = readers(leaf);
        const ValueRole& role = value(leaf);
        const Section made = v.op == none ? Section::unused : ops[v.op].section;
        const Section summed = ops[root].section;
        // A sum after the loop also accumulates terms that each micro-batch makes.
        const Placement micro = over_micro(leaf);
        const bool looped = made == Section::inside && summed == Section::after && role.accumulated &&
                            !role.per_micro && micro.kind == Placement::Kind::partial && micro.op == ReduceOp::sum;
        bool own = v.op != none && reading.ops.size() == 1 && reading.ends == 0 && role.alias == none &&
                   (looped || (made == summed && !role.accumulated));
        own = own && !ops[v.op].absorbed && !def(v.op).collective && !collective(program.op(v.op)) && !sums.count(v.op);
        const std::vector<int> adds = own ? def(v.op).accumulates : std::vector<int>{};
        const bool capable = own && adds == std::vector<int>{0} && program.op(v.op).outputs.size() == 1;
        if (own && (capable || direct.empty())) {
            accumulating += capable && (!direct.empty() || looped || value(total).accumulated);
            direct.push_back(leaf);
        } else {
            rest.push_back(leaf);
        }
    }
    if (accumulating == 0) return;
    for (ValueId leaf : direct) value(leaf).sum = total;
    ops[root].absorbed = rest.empty();
    // Sums that are part of this one need no instructions.
    std::vector<ValueId> inner(program.op(root).inputs);
    while (!inner.empty()) {
        const ValueId id = inner.back();
        inner.pop_back();
        const OpId made_by = program.value(id).op;
        if (made_by == none || std::find(leaves.begin(), leaves.end(), id) != leaves.end()) continue;
        ops[made_by].absorbed = true;
        inner.insert(inner.end(), program.op(made_by).inputs.begin(), program.op(made_by).inputs.end());
    }
    sums[root] = std::move(rest);
}

void LoopAnalysis::find_sums() {
    for (size_t i = ops.size(); i-- > 0;) {
        const Op& op = program.ops[i];
        if (ops[i].section == Section::unused || ops[i].absorbed || !is_sum(def(op))) continue;
        const OpId root = i;
        std::vector<ValueId> leaves;
        if (!value(op.outputs[0]).gathered && joins(root, op.inputs[0], leaves) && joins(root, op.inputs[1], leaves))
            plan_sum(root, std::move(leaves));
    }
}

}  // namespace orrery::lowering
