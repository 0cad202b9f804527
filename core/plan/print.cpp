#include "plan/print.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/text.h"
#include "ir/describe.h"

namespace orrery {

namespace {

std::string text_of(const Attribute& attribute) {
    if (const bool* flag = std::get_if<bool>(&attribute)) return *flag ? "true" : "false";
    if (const int64_t* integer = std::get_if<int64_t>(&attribute)) return fmt::format("{}", *integer);
    if (const double* number = std::get_if<double>(&attribute)) return fmt::format("{}", *number);
    if (const std::string* text = std::get_if<std::string>(&attribute)) return *text;
    return orrery::text_of(std::get<std::vector<int64_t>>(attribute));
}

std::string fragment_text(const Fragment& fragment) {
    return fragment.micro < 0 ? "-" : RankSchedule{{fragment}}.text();
}

std::string operand_text(const Program& program, const Operand& operand) {
    std::string place = fmt::format("b{}", operand.buffer);
    if (operand.offset > 0) place += fmt::format("+{}", operand.offset);
    if (operand.step != 0) place += fmt::format("+{} a micro-batch", operand.step);
    const std::string what = operand.value == none ? "joined" : label_of(program, operand.value);
    return fmt::format("{} {} {}", place, what, operand.type.text());
}

/// An attribute of a kernel that depends on the rank, as a formula: "start=0+dp*64".
std::string per_rank_text(const RankClass& c, const Mesh& mesh, int kernel, const std::string& key) {
    std::string text;
    for (const PerRank& p : c.per_rank) {
        if (p.kernel != kernel || p.key != key) continue;
        const std::string at = p.dim == none ? "" : fmt::format("[{}]", p.dim);
        text += fmt::format("{}+{}*{}", at, mesh.axis(p.axis).name, p.step);
    }
    return text;
}

std::string kernel_text(const Plan& plan, const RankClass& c, int index) {
    const KernelSpec& spec = c.kernels[index];
    std::vector<std::string> attributes;
    for (const auto& [key, value] : spec.attributes.items())
        attributes.push_back(key + "=" + text_of(value) + per_rank_text(c, plan.mesh, index, key));
    return attributes.empty() ? spec.op : fmt::format("{}{{{}}}", spec.op, join(attributes, " "));
}

std::string what_text(const Plan& plan, const RankClass& c, const Instruction& i) {
    if (i.opcode == Opcode::kernel) return kernel_text(plan, c, i.kernel);
    std::string text(name_of(i.opcode));
    if (i.axis != none) text += " " + plan.mesh.axis(i.axis).name;
    if (i.opcode == Opcode::all_reduce || i.opcode == Opcode::reduce_scatter)
        text += fmt::format(" {}", name_of(i.reduce));
    if (i.peer != none) text += fmt::format(" peer={}{} tag={}", i.relative ? "+" : "", i.peer, i.tag);
    return text;
}

std::string instruction_text(const Plan& plan, const RankClass& c, size_t index) {
    const Instruction& i = c.stream[index];
    const size_t inputs = i.opcode == Opcode::kernel ? c.kernels[i.kernel].inputs.size() : 1;
    std::string line =
        fmt::format("  {:>5} {:<4} q{} {}", index, fragment_text(i.fragment), i.queue, what_text(plan, c, i));
    for (size_t o = 0; o < i.operands.size(); ++o)
        line += (o == inputs ? " -> " : o == 0 ? "  " : ", ") + operand_text(plan.program, i.operands[o]);
    if (i.workspace != none) line += fmt::format("  workspace b{}", i.workspace);
    if (!i.waits.empty()) {
        line += "  waits";
        for (int wait : i.waits) line += fmt::format(" {}", wait);
    }
    return line + "\n";
}

std::string ranks_text(const RankClass& c) {
    if (c.ranks.empty()) return "no ranks";
    if (c.ranks.size() == 1) return fmt::format("rank {}", c.ranks[0]);
    const bool dense = c.ranks.back() - c.ranks.front() + 1 == std::ssize(c.ranks);
    return fmt::format("ranks {}{}{}", c.ranks.front(), dense ? ".." : " ... ", c.ranks.back());
}

}  // namespace

namespace {

std::string heading(const Plan& plan) {
    return fmt::format("plan {}  mesh {}  schedule {}  threads_per_rank {}\n", plan.program.name, plan.mesh.text(),
                       plan.schedule.name, plan.threads_per_rank);
}

std::string class_text(const Plan& plan, size_t rank_class) {
    const RankClass& c = plan.classes.at(rank_class);
    std::string out =
        fmt::format("class {}  {}  persistent {}  scratch {} of at least {}\n", rank_class, ranks_text(c),
                    bytes_text(c.persistent_bytes), bytes_text(c.scratch_bytes), bytes_text(c.scratch_floor));
    for (size_t b = 0; b < c.buffers.size(); ++b) {
        const Buffer& buffer = c.buffers[b];
        const std::string life = buffer.first < 0 ? "untouched" : fmt::format("{}..{}", buffer.first, buffer.last);
        out += fmt::format("  b{:<4} {:<10} {:>10}+{:<10} {:<10} {:<12} {}\n", b,
                           buffer.arena == Arena::persistent ? "persistent" : "scratch", buffer.offset, buffer.bytes,
                           name_of(buffer.use), life, buffer.value == none ? "" : label_of(plan.program, buffer.value));
    }
    for (size_t f = 0; f < c.frames.size(); ++f) {
        const Frames& frames = c.frames[f];
        out += fmt::format("  frames {}: pool {} at {}, {} slots of {} bytes; by micro-batch {}\n", f, frames.pool,
                           frames.offset, frames.slots, frames.stride, fmt::join(frames.slot_of, " "));
    }
    const Repeat& repeat = c.repeat;
    if (repeats(c))
        out += fmt::format("  instructions {}..{} run {} times, each {} micro-batches further on; alike from {}\n",
                           repeat.begin, repeat.end - 1, repeat.times, repeat.micros, repeat.from());
    for (size_t i = 0; i < c.stream.size(); ++i) out += instruction_text(plan, c, i);
    return out;
}

}  // namespace

std::string print(const Plan& plan, size_t rank_class) { return heading(plan) + class_text(plan, rank_class); }

std::string print(const Plan& plan) {
    std::string out = heading(plan);
    for (size_t k = 0; k < plan.classes.size(); ++k) out += class_text(plan, k);
    return out;
}

namespace {

/// The names of an instruction's values as text, shortened if there are more than six or a joined all_reduce has them.
std::string values_text(const Program& program, const Instruction& i) {
    std::vector<std::string> names;
    const bool joined = i.opcode == Opcode::all_reduce && i.operands.size() > 2;
    // A joined all_reduce has (input, output) pairs; only their inputs are named.
    for (size_t o = joined ? 2 : 0; o < i.operands.size(); o += joined ? 2 : 1)
        if (i.operands[o].value != none) names.push_back(label_of(program, i.operands[o].value));
    constexpr size_t few = 6;
    if (!joined && names.size() <= few) return names.empty() ? "" : " " + join(names, " ");
    return " " + join_few(names);
}

}  // namespace

std::string describe(const Plan& plan, const RankClass& c, int index) {
    return describe(plan, c, Issued{index, index >= c.repeat.end ? last_run(c) : 0});
}

std::string describe(const Plan& plan, const RankClass& c, const Issued& issued) {
    const Instruction i = in_run(c, issued);
    const auto place = &c - plan.classes.data();
    std::string what(name_of(i.opcode));
    if (i.opcode == Opcode::kernel && i.kernel >= 0 && i.kernel < std::ssize(c.kernels)) what = c.kernels[i.kernel].op;
    std::string text =
        fmt::format("class {} ({}), instruction {}: {}", place, ranks_text(c), position_of(c, issued), what);
    text += values_text(plan.program, i);
    if (i.axis != none) text += " over " + plan.mesh.axis(i.axis).name;
    if (i.relative) text += fmt::format(", member +{}", i.peer);
    if (i.fragment.micro >= 0) text += " in " + fragment_text(i.fragment);
    if (static_cast<size_t>(i.fragment.chunk) < c.stages.size())
        text += fmt::format(" of stage {}", c.stages[i.fragment.chunk]);
    if (i.op != none) {
        const std::string origin = plan.program.op(i.op).origin.text();
        if (!origin.empty()) text += ", " + origin;
    }
    return text;
}

}  // namespace orrery
