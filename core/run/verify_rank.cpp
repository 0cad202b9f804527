#include "run/verify_rank.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "ir/describe.h"
#include "ir/op.h"
#include "layout/shards.h"
#include "plan/access.h"

namespace orrery {
namespace {

constexpr size_t kept_findings = 200;
/// Two runs differ by the noise of both; a norm is a sample.
constexpr double margin = 4;

size_t kind_of(const Program& program, ValueId id, bool gradient) {
    if (gradient) return 2;
    const OpId maker = program.value(id).op;
    if (maker == none || program.op(maker).phase == Phase::update) return 3;
    return program.op(maker).phase == Phase::backward ? 1 : 0;
}

/// What collectives, and the packing around joined ones (layout/join.h), made `value` of.
ValueId sent_as(const Program& program, ValueId value) {
    int64_t start = 0;  // in the joined rows
    for (OpId maker; (maker = program.value(value).op) != none;) {
        const Op& op = program.op(maker);
        const bool moves = op.kind == "reshape" || op.kind == "transpose" || op.kind == "slice";
        if (!moves && op.kind != "concat" && !(op_def(op.kind).collective && op.inputs.size() == 1)) break;
        if (op.kind == "slice") start = op.attributes.integer("start");
        size_t input = 0;
        if (op.kind == "concat")
            for (; input + 1 < op.inputs.size(); ++input) {
                const int64_t width = program.value(op.inputs[input]).type.shape.back();
                if (start < width) break;
                start -= width;
            }
        value = op.inputs[input];
        if (program.grads().end() != std::find_if(program.grads().begin(), program.grads().end(),
                                                  [&](const auto& grad) { return grad.second == value; }))
            break;
    }
    return value;
}

bool communicates(const Instruction& instruction) {
    return instruction.what != Do::kernel && instruction.what != Do::copy;
}

}  // namespace

TwinRank::TwinRank(const Setting& setting)
    : s_(setting),
      class_(setting.plan.class_of(setting.rank)),
      injector_(setting.plan, class_, setting.rank, setting.options.injections) {
    const Program& program = s_.plan.program;
    for (size_t i = 0; i < s_.plan.mesh.axes().size(); ++i)
        if (s_.plan.mesh.axes()[i].sequential) micro_axis_ = static_cast<AxisId>(i);
    report_.seen.assign(program.values.size(), 0);
    gradient_.assign(program.values.size(), none);
    std::map<ValueId, ValueId> summed;  // by gradient: where it is whole, itself or what a collective made of it
    for (const auto& [param, grad] : program.grads()) summed.emplace(grad, grad);
    for (size_t i = 0; i < program.values.size(); ++i) {
        const auto found = summed.find(sent_as(program, static_cast<ValueId>(i)));
        const Value& made = program.values[i];
        if (found != summed.end() && !partial_over_ranks(made.layout) && made.type == program.value(found->first).type)
            found->second = static_cast<ValueId>(i);
    }
    for (const auto& [grad, value] : summed) gradient_[static_cast<size_t>(value)] = grad;
}

bool TwinRank::partial_over_ranks(const Layout& layout) const {
    const auto& partials = layout.partials();
    return std::any_of(partials.begin(), partials.end(),
                       [&](const auto& partial) { return partial.axis != micro_axis_; });
}

void TwinRank::feed(const Value& source, const Operand& place, const std::vector<std::byte>& whole) {
    Layout layout = source.layout;
    if (micro_axis_ != none) layout.set(micro_axis_, Placement::replicated());
    const Piece piece = block_of(layout, source.type.shape, s_.plan.mesh, s_.rank);
    for (Executor* executor : {&s_.actual, &s_.twin})
        slice(whole.data(), source.type.shape, piece, size_of(source.type.dtype), executor->tensor(place.value).data);
    set_note(place, {});
}

void TwinRank::step(int64_t step, const WholeContents& contents) {
    step_ = step;
    sequence_.clear();
    report_.gradient.clear();
    for (const Operand& place : class_.places) {
        const Value& source = value(place.value);
        if (source.role == Role::input || (source.role != Role::temporary && step == 1))
            feed(source, place, contents(source, step));
    }
    s_.actual.run(*this);
    s_.twin.finish();
}

Ranges<TwinRank::Note>& TwinRank::notes(const Operand& operand) {
    return notes_[arena(class_, operand) == Arena::scratch];
}

TwinRank::Note TwinRank::note_of(const Operand& operand) {
    Note all;
    const int64_t begin = address(class_, operand);
    notes(operand).visit(begin, begin + operand.type.bytes(), [&](Note& note) {
        all.dirty |= note.dirty;
        all.pending = std::max(all.pending, note.pending);
    });
    return all;
}

void TwinRank::set_note(const Operand& operand, Note note) {
    const int64_t begin = address(class_, operand);
    notes(operand).replace(begin, begin + operand.type.bytes(), note);
}

/// The kernel that does the op's own work, not one that packs, unpacks or adds for it.
bool TwinRank::own_kernel(const Instruction& i) const {
    const KernelSpec& spec = class_.kernels[static_cast<size_t>(i.kernel)];
    const std::string& kind = s_.plan.program.op(i.op).kind;
    if (spec.op != (kind == "shard" ? "slice" : kind)) return false;
    return spec.inputs.empty() || i.operands[0].value != i.operands[spec.inputs.size()].value;
}

/// Whether the operand is a whole value of the program when this instruction has written it.
bool TwinRank::completes(const Instruction& i, const Operand& operand) const {
    if (i.op == none || operand.value == none) return false;
    const Program& program = s_.plan.program;
    const Op& op = program.op(i.op);
    const auto& outputs = op.outputs;
    const bool own = std::find(outputs.begin(), outputs.end(), operand.value) != outputs.end();
    const size_t rank = value(operand.value).type.shape.size();
    switch (i.what) {
        case Do::kernel: {
            const KernelSpec& spec = class_.kernels[static_cast<size_t>(i.kernel)];
            if (spec.attributes.flag("accumulate")) return false;
            // A collective's pieces are unpacked by a transpose into the value's place.
            return own && (own_kernel(i) || (op_def(op.kind).collective && spec.op == "transpose"));
        }
        case Do::copy: return own;
        default: return operand.type.shape.size() == rank;  // packed pieces have a dim more
    }
}

/// Puts the oracle's block into `want_`; false when the value is a partial sum here.
bool TwinRank::cut(ValueId id, int64_t micro, const Tensor& local) {
    const Value& v = value(id);
    Layout layout = v.layout;
    if (micro_axis_ != none && micro < 0) layout.set(micro_axis_, Placement::replicated());
    const std::byte* whole = s_.oracle.whole(id);
    const auto split_by_ranks = [&](const Layout::Partial& p) { return s_.plan.mesh.size(p.axis) > 1; };
    if (!whole || std::any_of(layout.partials().begin(), layout.partials().end(), split_by_ranks)) return false;
    const Piece piece = block_of(layout, v.type.shape, s_.plan.mesh, s_.rank, std::max<int64_t>(micro, 0));
    if (count_of(piece.shape) != local.count() || v.type.dtype != local.dtype) return false;
    want_.resize(static_cast<size_t>(local.bytes()));
    slice(whole, v.type.shape, piece, size_of(v.type.dtype), want_.data());
    return true;
}

TwinRank::Judged TwinRank::judge(ValueId id, const Tensor& have, const void* want, bool complete) const {
    Judged judged;
    judged.far = difference(have.dtype, have.data, want, have.count());
    judged.tolerance = margin * (s_.oracle.moved(id) + epsilon_of(have.dtype) * judged.far.largest);
    judged.wrong = !(judged.far.distance <= judged.tolerance);
    const auto& reordered = s_.reordered[step_ > 1];
    if (s_.options.bitwise && complete && reordered[static_cast<size_t>(id)] == none && judged.far.unequal > 0)
        judged.wrong = true, judged.tolerance = 0;
    return judged;
}

void TwinRank::count(ValueId id, const Judged& judged, bool complete) {
    Compared& line = report_.compared[kind_of(s_.plan.program, id, gradient_[static_cast<size_t>(id)] != none)];
    ++(complete ? line.comparisons : line.replays);
    line.elements += judged.far.count;
    char& seen = report_.seen[static_cast<size_t>(id)];
    seen = std::max<char>(seen, complete ? 2 : 1);
    const double part = judged.far.distance == 0 ? 0
                        : judged.tolerance > 0   ? judged.far.distance / judged.tolerance
                                                 : std::numeric_limits<double>::infinity();
    if (part <= line.worst) return;
    line.worst = part;
    line.value = id;
    line.rank = s_.rank;
}

void TwinRank::find(int index, ValueId id, const Judged& judged, bool planned, bool infected) {
    if (report_.findings.size() >= kept_findings) {
        ++report_.further;
        return;
    }
    Finding finding;
    finding.step = step_;
    finding.rank = s_.rank;
    finding.index = index;
    finding.op = at(index).op;
    finding.value = id;
    finding.micro = at(index).fragment.micro;
    finding.far = judged.far;
    finding.tolerance = judged.tolerance;
    for (const Operand& operand : at(index).operands)
        if (operand.value == id) finding.type = operand.type;
    finding.planned = planned;
    finding.infected = infected;
    if (communicates(at(index))) finding.edge = edge_;
    report_.findings.push_back(std::move(finding));
}

/// A name that all members give to the communication at hand.
std::string TwinRank::edge(int index) {
    const Instruction& i = at(index);
    if (!communicates(i)) return "";
    const std::vector<int64_t> group = s_.plan.mesh.group(s_.rank, i.axis);
    std::string name = fmt::format("step {} {} {}/{}", step_, name_of(Do::all_reduce), i.axis, group.front());
    if (i.what == Do::send || i.what == Do::receive) {
        const int64_t peer = group[static_cast<size_t>(i.peer)];
        const bool sends = i.what == Do::send;
        name = fmt::format("step {} send {}/{}>{} {}", step_, i.axis, sends ? s_.rank : peer, sends ? peer : s_.rank,
                           i.tag);
    }
    return fmt::format("{} #{}", name, sequence_[name]++);
}

/// A value that was written bit by bit (a sum, a copy) is compared when it is read as what it has become.
void TwinRank::settle(int index, size_t which) {
    const Operand& operand = at(index).operands[which];
    const Note note = note_of(operand);
    if (note.pending == none || operand.value == none) return;
    const Tensor& twin = s_.twin.operand(index, which);
    if (!cut(operand.value, at(index).fragment.micro, twin)) return;
    const Judged replay = judge(operand.value, twin, want_.data(), true);
    std::memcpy(twin.data, want_.data(), want_.size());
    const Judged judged = judge(operand.value, s_.actual.operand(index, which), want_.data(), true);
    count(operand.value, judged, true);
    if (replay.wrong || (judged.wrong && !note.dirty))
        find(note.pending, operand.value, replay.wrong ? replay : judged, replay.wrong, note.dirty);
    set_note(operand, {note.dirty || judged.wrong, none});
    infected_ |= judged.wrong;
}

/// Where the optimizer first reads a whole gradient, the block of its first holder counts in its distance.
void TwinRank::add_gradient(int index, size_t which) {
    const ValueId id = at(index).operands[which].value;
    const ValueId gradient = id == none ? none : gradient_[static_cast<size_t>(id)];
    if (gradient == none || report_.gradient.count(gradient) != 0) return;
    const OpId reader = at(index).op;
    if (reader == none || s_.plan.program.op(reader).phase != Phase::update) return;  // a sum is on its way before
    const Tensor& have = s_.actual.operand(index, which);
    if (!cut(id, at(index).fragment.micro, have)) return;
    std::vector<int64_t> place = s_.plan.mesh.coordinates(s_.rank);
    if (s_.plan.stage_axis != none) place[static_cast<size_t>(s_.plan.stage_axis)] = 0;  // one stage has it
    const bool first = first_holder(value(id).layout, s_.plan.mesh, s_.plan.mesh.rank_of(place));
    const double distance = difference(have.dtype, have.data, want_.data(), have.count()).distance;
    report_.gradient[gradient] = first ? distance * distance : 0;
}

void TwinRank::before(int index) {
    const Instruction& i = at(index);
    infected_ = false;
    edge_ = edge(index);
    const bool reads_whole = i.what != Do::kernel || i.op == none || own_kernel(i);
    for_each_access(class_, i, [&](const Operand& operand, bool reads, bool writes) {
        if (!reads) return;
        infected_ |= note_of(operand).dirty;
        const auto which = static_cast<size_t>(&operand - i.operands.data());
        if (reads_whole && !writes) settle(index, which);
        if (operand.value != none) add_gradient(index, which);
    });
    if (infected_ && !edge_.empty()) report_.dirty_edges.insert(edge_);
    injector_.before(s_.actual, index);
}

void TwinRank::after(int index) {
    injector_.after(s_.actual, index);
    s_.twin.issue(index);
    const Instruction& i = at(index);
    if (i.what == Do::all_reduce && i.operands.size() > 2) {  // joined: each member's place
        for (size_t which = 3; which < i.operands.size(); which += 2) look(index, which);
        return;
    }
    for_each_access(class_, i, [&](const Operand& operand, bool, bool writes) {
        // A kernel's workspace is no operand and holds nothing.
        if (writes && operand.value != none) look(index, static_cast<size_t>(&operand - i.operands.data()));
    });
}

/// Compares what the instruction has written.
void TwinRank::look(int index, size_t which) {
    const Instruction& i = at(index);
    const Operand& operand = i.operands[which];
    if (operand.value == none) return;
    const Tensor& have = s_.actual.operand(index, which);
    const Tensor& twin = s_.twin.operand(index, which);
    const bool joined = i.what == Do::all_reduce && i.operands.size() > 2;
    const bool complete = (joined || completes(i, operand)) && cut(operand.value, i.fragment.micro, twin);
    Judged replay;
    if (complete) {
        replay = judge(operand.value, twin, want_.data(), true);
        std::memcpy(twin.data, want_.data(), want_.size());
    }
    // The copy that ends a step brings a param its next value.
    const bool update = i.what == Do::copy && i.op == none && i.operands[0].value != none;
    const Judged judged = judge(update ? i.operands[0].value : operand.value, have, twin.data, complete);
    count(operand.value, judged, complete);
    if (judged.wrong || replay.wrong)
        find(index, operand.value, replay.wrong ? replay : judged, replay.wrong, infected_);
    set_note(operand, {judged.wrong, complete ? none : index});
}

}  // namespace orrery
