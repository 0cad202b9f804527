// Values that need no instruction: reshapes, outermost slices, transposes that matmul can read, sums made in place.
#include <algorithm>

#include "plan/lower/loop_analysis.h"

namespace orrery::lowering {

namespace {

/// True when `dim` is the outermost one that counts: a block of it is contiguous.
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

void LoopAnalysis::alias_op(const Op& op, OpRole& role) {
    const ValueId in = op.inputs[0], out = op.outputs[0];
    ValueRole& to = value(out);
    const ValueRole& from = value(in);
    // A contribution that is added to others has to be moved; a whole kept for later has its own place.
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
            // Of a flattened left operand only the stored order can be read.
            const bool left = m.inputs[0] == out && program.value(m.inputs[1]).type.shape.size() == 2 &&
                              program.value(out).type.shape.size() > 2;
            const auto unswapped = m.inputs.begin() + static_cast<std::ptrdiff_t>(swaps.size());
            return !left && std::find(unswapped, m.inputs.end(), out) == m.inputs.end();
        });
        // A source that exists for another stretch of the loop cannot be read in place of the copy.
        const bool same_section = std::all_of(reading.ops.begin(), reading.ops.end(), [&](OpId reader) {
            return ops[reader].section == ops[i].section || !value(op.inputs[0]).per_micro;
        });
        if (!all_swap || !same_section || value(op.inputs[0]).accumulated) continue;
        role.swapped = true;
        role.alias = op.inputs[0];
        ops[i].absorbed = true;
    }
}

/// Collects the leaves of the sum of which `leaf` is an operand. Inner sums are those that only this sum reads.
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

/// Leaves that kernels can add themselves are: the first that only this sum reads is written, the others accumulate.
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
        // A sum after the loop takes the contributions of every micro-batch, too.
        const Placement micro = over_micro(leaf);
        const bool looped = made == Section::inside && summed == Section::after && role.accumulated &&
                            !role.per_micro && micro.kind == Placement::Kind::partial && micro.op == ReduceOp::sum;
        bool own = v.op != none && reading.ops.size() == 1 && reading.ends == 0 && role.alias == none &&
                   (looped || (made == summed && !role.accumulated));
        own = own && !ops[v.op].absorbed && !def(v.op).collective && !sums.count(v.op);
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
    // Inner sums have no instruction of their own.
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
