#include "plan/summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <map>

#include "base/text.h"
#include "ir/flops.h"
#include "ir/op.h"
#include "plan/lower/buffers.h"
#include "plan/memory_parts.h"
#include "plan/repeat.h"

namespace orrery {

namespace {

void count_persistent(const RankClass& c, ClassSummary& s) {
    for (const Buffer& b : c.buffers) {
        if (b.arena != Arena::persistent) continue;
        const int64_t bytes = aligned(b.bytes);
        switch (b.use) {
            case BufferUse::input: s.inputs += bytes; break;
            case BufferUse::param: s.params += bytes; break;
            case BufferUse::state: s.states += bytes; break;
            default: s.results += bytes; break;
        }
    }
}

/// Splits the bytes in use when the scratch arena is fullest by MemoryPart.
void count_scratch(const Plan& plan, const RankClass& c, ClassSummary& s) {
    struct Change {
        int when;
        MemoryPart part;
        int64_t bytes;
    };
    std::vector<Change> changes;
    const auto add = [&](MemoryPart part, const Lifetime& life) {
        changes.push_back({life.first, part, life.bytes});
        changes.push_back({life.last + 1, part, -life.bytes});
    };
    for (const Lifetime& pool : pool_lifetimes(c)) add(MemoryPart::activations, pool);
    const std::vector<MemoryPart> parts = memory_parts(plan, c);
    for (size_t i = 0; i < c.buffers.size(); ++i) {
        const Buffer& b = c.buffers[i];
        if (b.arena != Arena::scratch || b.first < 0) continue;
        if (b.frames == none) add(parts[i], {aligned(b.bytes + slack(b)), b.first, b.last});
    }
    std::sort(changes.begin(), changes.end(),
              [](const Change& a, const Change& b) { return a.when != b.when ? a.when < b.when : a.bytes < b.bytes; });
    std::map<MemoryPart, int64_t> alive;
    int64_t now = 0, most = 0;
    for (const Change& change : changes) {
        alive[change.part] += change.bytes;
        now += change.bytes;
        if (now <= most) continue;
        most = now;
        s.gradients = alive[MemoryPart::gradients];
        s.param_copies = alive[MemoryPart::param_copies];
        s.activations = alive[MemoryPart::activations];
        s.workspaces = alive[MemoryPart::workspaces];
    }
}

}  // namespace

WireBytes::WireBytes(const Network& contracts, const std::map<std::string, std::vector<ChunkTable>>& collectives)
    : contracts_(contracts) {
    for (const auto& [axis, tables] : collectives)
        for (const ChunkTable& table : tables) {
            const ChunkCost made = cost(table);
            parts_[{axis, table.collective}] = {made.chunks, made.of};
        }
}

int64_t WireBytes::bytes_sent(const Instruction& i, const Mesh& mesh) const {
    if (i.axis == none) return 0;
    const int64_t members = mesh.size(i.axis);
    const std::string& axis = mesh.axis(i.axis).name;
    if (const auto made = parts_.find({axis, i.opcode}); made != parts_.end()) {
        const auto [chunks, of] = made->second;
        const int64_t bytes = i.operands[i.opcode == Opcode::all_gather].type.bytes();
        return bytes / of * chunks + bytes % of * chunks / of;
    }
    if (i.opcode == Opcode::all_reduce && members > 2) {
        const int64_t bytes = i.operands[0].type.bytes();
        if (bytes <= contracts_.of(axis).small_bytes) return bytes * std::bit_width(static_cast<uint64_t>(members - 1));
    }
    auto share = [&](int64_t bytes) {
        return bytes / members * (members - 1) + bytes % members * (members - 1) / members;
    };
    switch (i.opcode) {
        case Opcode::all_reduce: return 2 * share(i.operands[0].type.bytes());
        case Opcode::all_gather: return share(i.operands[1].type.bytes());
        case Opcode::reduce_scatter:
        case Opcode::all_to_all: return share(i.operands[0].type.bytes());
        case Opcode::send: return i.operands[0].type.bytes();
        default: return 0;
    }
}

double local_flops(const Plan& plan, const Instruction& i, const RankClass& c) {
    if (i.opcode != Opcode::kernel || i.op == none) return 0;
    const Op& op = plan.program.op(i.op);
    if (c.kernels[i.kernel].op != op.kind) return 0;
    const OpDef& def = op_def(op.kind);
    if (!def.flops) return 0;
    // An axis that splits an operand also splits the floating-point operations.
    std::vector<char> splits(plan.mesh.axes().size(), 0);
    for (const auto* ids : {&op.inputs, &op.outputs})
        for (ValueId id : *ids)
            for (const auto& axes : plan.program.value(id).layout.splits())
                for (AxisId axis : axes) splits[axis] = 1;
    double flops = static_cast<double>(orrery::flops(plan.program, op));
    for (size_t axis = 0; axis < splits.size(); ++axis)
        if (splits[axis]) flops /= static_cast<double>(plan.mesh.axes()[axis].size);
    return flops;
}

PlanSummary summary(const Plan& plan, const WireBytes& wires) {
    PlanSummary all;
    all.stage_axis = plan.stage_axis;
    all.ahead = plan.ahead;
    for (const RankClass& c : plan.classes) {
        ClassSummary& s = all.classes.emplace_back();
        s.ranks = c.ranks.size();
        count_persistent(c, s);
        count_scratch(plan, c, s);
        s.scratch = c.scratch_bytes;
        s.floor = c.scratch_floor;
        s.total = c.persistent_bytes + c.scratch_bytes;
        std::map<std::pair<AxisId, Opcode>, ClassSummary::Traffic> traffic;
        std::map<OpId, double> flops;
        for (const Instruction& i : c.stream) {
            const int64_t times = times_of(c, &i - c.stream.data());
            s.kernels += i.opcode == Opcode::kernel ? times : 0;
            if (i.opcode == Opcode::kernel && i.op != none) {
                const auto [found, fresh] = flops.try_emplace(i.op, 0.0);
                if (fresh) found->second = local_flops(plan, i, c);
                if (c.kernels[i.kernel].op == plan.program.op(i.op).kind)
                    s.flops += found->second * static_cast<double>(times);
            }
            if (i.axis == none || i.opcode == Opcode::receive) continue;
            ClassSummary::Traffic& t =
                traffic.try_emplace({i.axis, i.opcode}, ClassSummary::Traffic{i.opcode, i.axis, 0, 0}).first->second;
            t.count += times;
            t.bytes_sent += times * wires.bytes_sent(i, plan.mesh);
        }
        for (auto& [key, t] : traffic) s.traffic.push_back(t);
        all.stored = stored_micros(c, plan.mesh);
        all.run = repeats(c) ? c.repeat.micros : 0;
    }
    return all;
}

namespace {

std::string body_of(const ClassSummary& s, const Mesh& mesh) {
    std::string out;
    auto line = [&](std::string_view name, int64_t bytes) {
        if (bytes > 0) out += fmt::format("  {:<14} {:>12}\n", name, bytes_text(bytes));
    };
    line("params", s.params);
    line("optimizer", s.states);
    line("inputs", s.inputs);
    line("results", s.results);
    if (s.scratch > 0) out += "  at the fullest moment of the step:\n";
    line("  gradients", s.gradients);
    line("  param copies", s.param_copies);
    line("  activations", s.activations);
    line("  workspace", s.workspaces);
    line("  gaps", s.scratch - s.floor);
    for (const ClassSummary::Traffic& t : s.traffic)
        out += fmt::format("  {} over {}: {} a step, {} sent\n", name_of(t.opcode), mesh.axis(t.axis).name,
                           count_text(t.count), bytes_text(t.bytes_sent));
    return out + fmt::format("  {} launches, {} flop a step\n", count_text(s.kernels), short_text(s.flops));
}

}  // namespace

std::string PlanSummary::text(const Mesh& mesh) const {
    std::string out;
    for (size_t k = 0, next; k < classes.size(); k = next) {
        const ClassSummary& s = classes[k];
        const std::string body = body_of(s, mesh);
        int64_t ranks = s.ranks;  // adjacent classes with the same text are printed once, with the sum of their ranks
        for (next = k + 1; next < classes.size() && classes[next].total == s.total; ++next) {
            if (body_of(classes[next], mesh) != body) break;
            ranks += classes[next].ranks;
        }
        const std::string title = next - k > 1 ? fmt::format("{} ranks of {} streams", count_text(ranks), next - k)
                                  : ranks == 1 ? "1 rank"
                                               : count_text(ranks) + " ranks of one stream";
        std::string place;
        if (stage_axis != none && next - k > 1)
            place = fmt::format(" ({}={} to {})", mesh.axis(stage_axis).name, k, next - 1);
        else if (stage_axis != none)
            place = fmt::format(" ({}={})", mesh.axis(stage_axis).name, k);
        out += fmt::format("{}{}: {} per rank\n{}", title, place, bytes_text(s.total), body);
    }
    for (size_t axis = 0; axis < ahead.size(); ++axis)
        if (!ahead[axis].none())
            out += fmt::format("gathers over {} run {} ahead, reduce-scatters are delayed as much\n",
                               mesh.axis(axis).name, ahead[axis].text());
    const std::string micros = plural(mesh.microbatches(), "micro-batch");
    if (run > 0)
        out += fmt::format("instruction streams store {} of {}: a repeated part of {} runs {} times\n",
                           count_text(stored), micros, run, count_text(1 + (mesh.microbatches() - stored) / run));
    else if (stored > written_micros)
        out += fmt::format("instruction streams store all {}: no repeated part was found\n", micros);
    return out;
}

}  // namespace orrery
