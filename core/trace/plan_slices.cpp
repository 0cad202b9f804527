#include "trace/plan_slices.h"

#include <fmt/format.h>

#include <algorithm>

#include "ir/describe.h"
#include "plan/access.h"

namespace orrery {
namespace {

std::string name_in(const Plan& plan, const RankClass& c, const Instruction& i) {
    if (i.opcode == Opcode::kernel) return c.kernels[static_cast<size_t>(i.kernel)].op;
    if (i.axis == none) return std::string(name_of(i.opcode));
    return fmt::format("{} {}", name_of(i.opcode), plan.mesh.axis(i.axis).name);
}

std::string value_of(const Program& program, const RankClass& c, const Instruction& i) {
    const size_t outputs = i.opcode == Opcode::kernel ? c.kernels[static_cast<size_t>(i.kernel)].inputs.size() : 0;
    for (size_t o = std::min(outputs, i.operands.size()); o < i.operands.size(); ++o)
        if (i.operands[o].value != none) return label_of(program, i.operands[o].value);
    return "";
}

}  // namespace

int64_t bytes_of(const Instruction& i) {
    if (i.opcode == Opcode::all_gather) return i.operands[1].type.bytes();
    if (i.opcode != Opcode::kernel) return i.operands[0].type.bytes();
    int64_t bytes = 0;
    for (const Operand& operand : i.operands) bytes += operand.type.bytes();
    return bytes;
}

std::string PlanSlices::lane_of(const Instruction& i) const {
    return i.axis == none ? compute_lane : plan_.mesh.axis(i.axis).name;
}

TraceSlice PlanSlices::plain(int64_t rank, const Instruction& i) const {
    const RankClass& c = plan_.class_of(rank);
    TraceSlice slice;
    slice.process = rank;
    slice.lane = lane_of(i);
    slice.name = name_in(plan_, c, i);
    slice.category = i.axis == none ? "compute" : "communication";
    const auto argument = [&](const char* name, TraceSlice::Argument value) {
        slice.arguments.emplace_back(name, std::move(value));
    };
    if (std::string value = value_of(plan_.program, c, i); !value.empty()) argument("value", std::move(value));
    argument("bytes", bytes_of(i));
    if (i.fragment.micro >= 0) {
        argument("fragment", RankSchedule{{i.fragment}}.text());
        argument("micro_batch", i.fragment.micro);
    }
    if (static_cast<size_t>(i.fragment.chunk) < c.stages.size())
        argument("stage", int64_t{c.stages[static_cast<size_t>(i.fragment.chunk)]});
    if (i.op == none) return slice;
    const Op& op = plan_.program.op(i.op);
    if (!op.scope.empty()) argument("scope", op.scope);
    if (const std::string script = op.origin.text(); !script.empty()) argument("script", script);
    return slice;
}

TraceSlice PlanSlices::of(int64_t rank, const Issued& issued) {
    const Instruction i = in_run(plan_.class_of(rank), issued);
    TraceSlice slice = plain(rank, i);
    if (!is_message(i.opcode)) return slice;
    const bool sends = i.opcode == Opcode::send;
    const int64_t own = plan_.mesh.member(rank, i.axis);
    const int64_t peer = plan_.mesh.group(rank, i.axis)[static_cast<size_t>(i.peer_of(own, plan_.mesh.size(i.axis)))];
    const Message message{i.axis, sends ? rank : peer, sends ? peer : rank, i.tag};
    const int64_t place = (sends ? sent_ : received_)[message]++;
    slice.end = sends ? FlowEnd::from : FlowEnd::to;
    slice.flow = flows_.try_emplace({message, place}, static_cast<int64_t>(flows_.size()) + 1).first->second;
    slice.arguments.emplace_back(sends ? "to_rank" : "from_rank", peer);
    slice.arguments.emplace_back("tag", i.tag);
    return slice;
}

TraceSlice PlanSlices::wait(int64_t rank, const Issued& who, const Issued& awaited) const {
    const RankClass& c = plan_.class_of(rank);
    const TraceSlice before = plain(rank, in_run(c, awaited));
    TraceSlice slice;
    slice.process = rank;
    slice.lane = compute_lane;
    slice.name = "wait for " + before.name;
    slice.category = "waiting";
    slice.arguments = before.arguments;
    slice.arguments.emplace_back("before", name_in(plan_, c, in_run(c, who)));
    return slice;
}

}  // namespace orrery
