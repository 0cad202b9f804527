#include "run/verify/verify_rank.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "ir/codecs.h"
#include "ir/describe.h"
#include "ir/op.h"
#include "plan/access.h"

namespace orrery {
namespace {

constexpr size_t kept_findings = 2000;

bool communicates(const Instruction& instruction) {
    return instruction.opcode != Opcode::kernel && instruction.opcode != Opcode::copy;
}

bool same_bits(const Tensor& a, const Tensor& b) { return std::memcmp(a.data, b.data, a.bytes()) == 0; }

}  // namespace

size_t kind_of(const Program& program, ValueId id, bool gradient) {
    if (gradient) return 2;
    const OpId maker = program.value(id).op;
    if (maker == none || program.op(maker).phase == Phase::update) return 3;
    return program.op(maker).phase == Phase::backward ? 1 : 0;
}

double tolerance_of(const Oracle& oracle, ValueId value, DType dtype, double largest, double rounded) {
    return margin * (oracle.moved(value) + epsilon_of(dtype) * largest + rounded);
}

TwinRank::TwinRank(const Setting& setting)
    : s_(setting),
      class_(setting.plan.class_of(setting.rank)),
      injector_(setting.plan, class_, setting.rank, setting.options.injections) {
    const Program& program = s_.plan.program;
    micro_axis_ = s_.plan.mesh.sequential_axis().value_or(none);
    report_.seen.assign(program.values.size(), 0);
    updates_.assign(program.values.size(), 0);
    find_coded();
    for (const RankClass& c : s_.plan.classes)
        for (const Instruction& i : c.stream) {
            if (i.op == none || program.op(i.op).phase != Phase::update) continue;
            for_each_access(c, i, [&](const Operand& operand, bool reads, bool) {
                if (reads && operand.value != none) updates_[operand.value] = 1;
            });
        }
}

void TwinRank::find_coded() {
    const Program& program = s_.plan.program;
    coded_.assign(program.values.size(), none);
    encoded_.assign(program.values.size(), 0);
    for (const CodedMessage& coded : program.coded) {
        coded_[coded.result] = static_cast<int>(&coded - program.coded.data());
        encoded_[coded.encoded] = 1;
        if (coded.sum != none) encoded_[coded.sum] = 1;
        const Codec& codec = codec_named(program, coded.codec, {});
        bounds_.push_back(codec.bound);
        const AxisId axis = *s_.plan.mesh.find(coded.axis);
        const bool adds = value(coded.plain).layout.at(axis).kind == Placement::Kind::partial;
        if (coded.decoded != none)
            decoded_[stored_as(coded.decoded)] = {coded.encoded, coded.decoded, codec.bound, codec.floor, adds};
        if (coded.sum != none)
            decoded_[stored_as(coded.sum_decoded)] = {coded.sum, coded.sum_decoded, codec.bound, codec.floor};
        if (const ValueId error = error_in(coded); error != none) encoded_[error] = 1;
    }
    for (const Op& op : program.ops)
        if (op_def(op.kind).alias && coded_[op.outputs[0]] == none) coded_[op.outputs[0]] = coded_[op.inputs[0]];
}

/// The value that has a value's memory, since ops between them only change its shape.
ValueId TwinRank::stored_as(ValueId id) const {
    for (OpId maker = value(id).op; maker != none && op_def(s_.plan.program.op(maker).kind).alias; maker = value(id).op)
        id = s_.plan.program.op(maker).inputs[0];
    return id;
}

/// What feedback adds to the terms of a coded sum: the second input of the op that makes what is encoded; or none.
ValueId TwinRank::error_in(const CodedMessage& coded) const {
    const OpId maker = value(coded.encoded).op;
    const bool added = maker != none && is_sum(op_def(s_.plan.program.op(maker).kind));
    return added ? s_.plan.program.op(maker).inputs[1] : none;
}

/// Max distance of a value that was sent as codes from the plain value (the formula is in README.md). 0: the value is
/// not the result of such a message.
double TwinRank::coded_bound(ValueId id, int64_t micro, bool twin) const {
    if (coded_[id] == none) return 0;
    const CodedMessage& coded = s_.plan.program.coded[coded_[id]];
    const std::vector<int64_t> members = s_.plan.mesh.group(s_.rank, *s_.plan.mesh.find(coded.axis));
    const bool in_pieces =
        micro_axis_ != none && value(coded.result).layout.at(micro_axis_).kind == Placement::Kind::split;
    const auto own = [&](ValueId of, int64_t rank) {
        return of == none ? 0 : s_.encodings.total(of, twin, rank, in_pieces ? std::optional(micro) : std::nullopt);
    };
    const auto sum = [&](ValueId of) {
        double all = 0;
        for (const int64_t rank : members) all += own(of, rank);
        return all;
    };
    const double errors = sum(error_in(coded));
    if (coded.decoded == none) return bounds_[coded_[id]] * sum(coded.encoded) + errors;
    if (coded.sum == none) return own(coded.decoded, s_.rank) + errors;
    double squares = 0;  // each member has decoded the terms of its own part
    for (const int64_t rank : members) squares += own(coded.decoded, rank) * own(coded.decoded, rank);
    return std::sqrt(squares) + own(coded.sum_decoded, s_.rank) + errors;
}

Encodings::Key TwinRank::key_of(ValueId id, int64_t micro, bool twin) const {
    const Layout& layout = value(id).layout;
    const bool each_micro = micro_axis_ != none && layout.at(micro_axis_).kind == Placement::Kind::partial;
    const bool each_island = s_.islands != none && layout.at(s_.islands).kind == Placement::Kind::replicate;
    return {id, twin, each_island ? s_.plan.mesh.coordinates(s_.rank)[s_.islands] : 0, each_micro ? micro : 0};
}

/// Keeps what this rank and its twin encode, and its norm.
void TwinRank::keep_encoded(int index, size_t which) {
    const Operand& operand = at(index).operands[which];
    const int64_t micro = at(index).fragment.micro;
    for (const bool twin : {false, true}) {
        const Tensor& local = (twin ? s_.twin : s_.actual).operand(index, which);
        const double norm = difference(local.dtype, local.data, local.data, local.count()).norm;
        s_.encodings.set(operand.value, twin, s_.rank, micro, norm);
        const std::optional<Block> piece = held(operand.value, micro);
        if (local.dtype != DType::f32 || !piece || piece->count() != local.count()) continue;
        s_.encodings.keep(key_of(operand.value, micro, twin), value(operand.value).type.shape, *piece, local.data);
    }
}

/// Measures how far what was decoded is from what was encoded. Each row of the twin's must be within the codec's bound.
void TwinRank::weigh_decoded(int index, size_t which) {
    const Instruction& i = at(index);
    const auto pair = decoded_.find(i.operands[which].value);
    if (pair == decoded_.end() || !completes(i, i.operands[which])) return;
    const ValueId id = pair->second.decoded;
    const Shape& shape = value(id).type.shape;
    const std::optional<Block> piece = held(id, i.fragment.micro);
    for (const bool twin : {false, true}) {
        const Tensor& have = (twin ? s_.twin : s_.actual).operand(index, which);
        if (!piece || piece->count() != have.count()) return;
        const std::optional<std::vector<float>> want =
            s_.encodings.block(key_of(pair->second.value, i.fragment.micro, twin), shape, *piece);
        if (!want) return;  // decode reads no codes, so that it may come first
        const auto far_in = [&](int64_t from, int64_t count) {
            return difference(DType::f32, static_cast<const float*>(have.data) + from, want->data() + from, count);
        };
        const int64_t terms = pair->second.terms ? piece->shape[0] : 1, each = have.count() / terms;
        double distance = 0;
        for (int64_t term = 0; term < terms; ++term) distance += far_in(term * each, each).distance;
        s_.encodings.set(id, twin, s_.rank, i.fragment.micro, distance);
        const int64_t row = piece->shape.back();
        for (int64_t at = 0; twin && at < have.count(); at += row) {
            const Difference far = far_in(at, row);
            Judged judged;
            judged.tolerance =
                pair->second.bound * far.norm * (1 + 1e-6) + pair->second.floor * std::sqrt(static_cast<double>(row));
            if (far.distance <= judged.tolerance) continue;
            judged.far = far;
            judged.far.worst += at;
            find(index, id, judged).planned = true;
            break;
        }
    }
}

void TwinRank::feed(const Value& source, const Operand& place, const std::vector<std::byte>& whole) {
    const bool in_pieces = micro_axis_ != none && source.layout.at(micro_axis_).kind == Placement::Kind::split;
    for (int64_t micro = 0; micro < (in_pieces ? s_.plan.mesh.microbatches() : 1); ++micro) {
        const Block piece = block_of(source.layout, source.type.shape, s_.plan.mesh, s_.rank, micro);
        const int64_t bytes = count_of(piece.shape) * size_of(source.type.dtype);
        for (Executor* executor : {&s_.actual, &s_.twin, &s_.echo})
            slice(whole.data(), source.type.shape, piece, size_of(source.type.dtype),
                  static_cast<std::byte*>(executor->tensor(place.value).data) + micro * bytes);
    }
    set_note(place, {});
}

void TwinRank::step(int64_t step, bool first, const WholeContents& contents) {
    step_ = step;
    sequence_.clear();
    report_.gradient.clear();
    report_.choices.clear();
    for (const Operand& place : class_.places) {
        const Value& source = value(place.value);
        if (source.role == Role::temporary) continue;
        if (source.role == Role::input || first) {
            feed(source, place, contents(source, step));
            continue;
        }
        const Tensor mine = s_.actual.tensor(place.value);
        std::memcpy(s_.twin.tensor(place.value).data, mine.data, mine.bytes());
        set_note(place, {});
    }
    s_.actual.run(*this);
    s_.twin.finish();
    s_.echo.finish();
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

/// Whether the kernel does the op's own work; other kernels pack, unpack or add for the op.
bool TwinRank::own_kernel(const Instruction& i) const {
    const KernelSpec& spec = class_.kernels[i.kernel];
    if (spec.op != kernel_of(op_def(s_.plan.program.op(i.op).kind))) return false;
    return spec.inputs.empty() || i.operands[0].value != i.operands[spec.inputs.size()].value;
}

/// Whether the operand holds a complete value of the program after instruction `i`.
bool TwinRank::completes(const Instruction& i, const Operand& operand) const {
    if (i.op == none || operand.value == none) return false;
    const Program& program = s_.plan.program;
    const Op& op = program.op(i.op);
    const auto& outputs = op.outputs;
    const bool own = std::find(outputs.begin(), outputs.end(), operand.value) != outputs.end();
    switch (i.opcode) {
        case Opcode::kernel: {
            const KernelSpec& spec = class_.kernels[i.kernel];
            if (spec.attributes.flag("accumulate")) return false;
            // A transpose unpacks a collective's received pieces into the value.
            return own && (own_kernel(i) || (op_def(op.kind).collective && op_def(spec.op).moves == Moves::permutes));
        }
        case Opcode::copy: return own;
        default: return unpacked(operand);
    }
}

/// Whether the operand has as many dims as its value. Values packed in pieces for a message have one more.
bool TwinRank::unpacked(const Operand& operand) const {
    return operand.type.shape.size() == value(operand.value).type.shape.size();
}

/// The part of a value that the rank has; nullopt if the oracle lacks it (a partial sum).
std::optional<Block> TwinRank::block(ValueId id, int64_t micro) const {
    const Layout& layout = value(id).layout;
    const auto in_parts = [&](const Layout::Partial& p) {
        return s_.plan.mesh.size(p.axis) > 1 && (p.axis != micro_axis_ || micro >= 0);
    };
    if (std::any_of(layout.partials().begin(), layout.partials().end(), in_parts)) return std::nullopt;
    return held(id, micro);
}

/// The same for what may be a partial sum; nullopt if the rank has no single block.
std::optional<Block> TwinRank::held(ValueId id, int64_t micro) const {
    const Value& v = value(id);
    Layout layout = v.layout;
    if (micro_axis_ != none && micro < 0) {
        // Rows of all micro-batches are a block only if no axis splits the rows of one micro-batch.
        for (const auto& axes : layout.splits())
            if (std::ranges::count(axes, micro_axis_) > 0 && axes.back() != micro_axis_) return std::nullopt;
        layout.set(micro_axis_, Placement::replicated());
    }
    return block_of(layout, v.type.shape, s_.plan.mesh, s_.rank, std::max<int64_t>(micro, 0));
}

/// Copies the oracle's block of a value to `want_`; false if the rank's block is not comparable.
bool TwinRank::cut(ValueId id, int64_t micro, const Tensor& local) {
    const Value& v = value(id);
    const std::byte* whole = s_.oracle.whole(id);
    const std::optional<Block> piece = block(id, micro);
    if (!whole || !piece || piece->count() != local.count() || v.type.dtype != local.dtype) return false;
    want_.resize(local.bytes());
    slice(whole, v.type.shape, *piece, size_of(v.type.dtype), want_.data());
    left_out_.clear();
    if (const char* left_out = s_.oracle.left_out(id)) {
        left_out_.resize(local.count());
        slice(left_out, v.type.shape, *piece, 1, left_out_.data());
    }
    return true;
}

/// The index in the whole value of an element of the rank's block.
int64_t TwinRank::whole_index(ValueId id, int64_t micro, int64_t element) const {
    const Block piece = *block(id, micro);
    const Shape& shape = value(id).type.shape;
    int64_t at = 0, stride = 1;
    for (size_t d = shape.size(); d-- > 0; element /= piece.shape[d]) {
        at += (piece.offset[d] + element % piece.shape[d]) * stride;
        stride *= shape[d];
    }
    return at;
}

TwinRank::Judged TwinRank::judge(ValueId id, const Tensor& have, const void* want, bool complete,
                                 double rounded) const {
    Judged judged;
    const char* left_out = complete && !left_out_.empty() ? left_out_.data() : nullptr;
    judged.far = difference(have.dtype, have.data, want, have.count(), left_out);
    judged.rounded = rounded;
    judged.tolerance = tolerance_of(s_.oracle, id, have.dtype, judged.far.largest, rounded);
    judged.wrong = !(judged.far.distance <= judged.tolerance);
    const auto& reordered = s_.reordered[step_ > 1];
    if (s_.options.bitwise && complete && reordered[id] == none && judged.far.unequal > 0)
        judged.wrong = judged.exact = true, judged.tolerance = 0;
    return judged;
}

void TwinRank::count(ValueId id, const Judged& judged, bool complete) {
    Compared& line = report_.compared[kind_of(s_.plan.program, id, s_.gradients.multiple_of(id) != none)];
    ++(complete ? line.comparisons : line.replays);
    line.elements += judged.far.count;
    line.left_out += judged.far.left_out;
    char& seen = report_.seen[id];
    seen = std::max<char>(seen, complete ? 2 : 1);
    if (judged.wrong) return;  // not in the table: recorded as a finding, which more draws may clear
    const double part = judged.far.distance == 0 ? 0 : judged.far.distance / judged.tolerance;
    if (part > line.worst) line.worst = part, line.value = id, line.rank = s_.rank;
}

Finding& TwinRank::find(int index, ValueId id, const Judged& judged) {
    if (report_.findings.size() >= kept_findings) {
        ++report_.further;
        report_.findings.pop_back();
    }
    return report_.findings.emplace_back(finding_of(index, id, judged));
}

Finding TwinRank::finding_of(int index, ValueId id, const Judged& judged) const {
    Finding finding;
    finding.step = step_;
    finding.rank = s_.rank;
    finding.index = index;
    finding.op = at(index).op;
    finding.value = id;
    finding.micro = at(index).fragment.micro;
    finding.far = judged.far;
    finding.tolerance = judged.tolerance;
    finding.rounded = judged.rounded;
    finding.exact = judged.exact;
    finding.gradient = s_.gradients.multiple_of(id) != none;
    finding.type = value(id).type;
    for (const Operand& operand : at(index).operands)
        if (operand.value == id) finding.type = operand.type;
    finding.infected = infected_;
    if (communicates(at(index))) finding.edge = edge_;
    return finding;
}

/// Name of the current communication, the same on all its ranks.
std::string TwinRank::edge(int index) {
    const Instruction& i = at(index);
    if (!communicates(i)) return "";
    const std::vector<int64_t> group = s_.plan.mesh.group(s_.rank, i.axis);
    std::string name = fmt::format("step {} {} {}/{}", step_, name_of(Opcode::all_reduce), i.axis, group.front());
    if (i.opcode == Opcode::send || i.opcode == Opcode::receive) {
        const int64_t own = s_.plan.mesh.coordinates(s_.rank)[i.axis];
        const int64_t peer = group[i.peer_of(own, s_.plan.mesh.size(i.axis))];
        const bool sends = i.opcode == Opcode::send;
        name = fmt::format("step {} send {}/{}>{} {}", step_, i.axis, sends ? s_.rank : peer, sends ? peer : s_.rank,
                           i.tag);
    }
    return fmt::format("{} #{}", name, sequence_[name]++);
}

/// Compares a value that was written in several parts (a sum, copies) when it is read as a whole.
void TwinRank::settle(int index, size_t which) {
    const Operand& operand = at(index).operands[which];
    const Note note = note_of(operand);
    if (note.pending == none || operand.value == none || !unpacked(operand)) return;
    const Tensor& twin = s_.twin.operand(index, which);
    if (!cut(operand.value, at(index).fragment.micro, twin)) return;
    const auto bound = [&](bool of_twin) {
        return coded_bound(operand.value, at(index).fragment.micro, of_twin) / margin;
    };
    const Judged replay = judge(operand.value, twin, want_.data(), true, bound(true));
    std::memcpy(twin.data, want_.data(), want_.size());
    const Tensor& have = s_.actual.operand(index, which);
    const Judged judged = judge(operand.value, have, want_.data(), true, bound(false));
    if (coded_[operand.value] != none && !replay.wrong && !judged.wrong)
        for (const Tensor& copy : {have, s_.echo.operand(index, which)})
            std::memcpy(copy.data, want_.data(), want_.size());
    count(operand.value, judged, true);
    if (replay.wrong || (judged.wrong && !note.dirty)) {
        Finding& finding = find(note.pending, operand.value, replay.wrong ? replay : judged);
        finding.planned = replay.wrong;
        finding.infected = note.dirty;
    }
    set_note(operand, {note.dirty || judged.wrong, none});
    infected_ |= judged.wrong;
}

/// Records the squared distance of a whole gradient, or of a multiple of it, on the first rank that holds it. Measures
/// where the optimizer first reads the value, or where the value is complete if no optimizer reads it.
void TwinRank::add_gradient(int index, size_t which) {
    const ValueId id = at(index).operands[which].value;
    if (id == none || s_.gradients.multiple_of(id) == none || report_.gradient.count(id) != 0) return;
    if (!unpacked(at(index).operands[which])) return;
    const OpId reader = at(index).op;
    const bool updates = reader != none && s_.plan.program.op(reader).phase == Phase::update;
    if (!updates && updates_[id]) return;  // measured when the optimizer reads the value
    const Tensor& have = s_.actual.operand(index, which);
    if (!cut(id, at(index).fragment.micro, have)) return;
    std::vector<int64_t> place = s_.plan.mesh.coordinates(s_.rank);
    if (s_.plan.stage_axis != none) place[s_.plan.stage_axis] = 0;  // only one pipeline stage has the value
    if (s_.islands != none) place[s_.islands] = 0;
    const bool first = first_holder(value(id).layout, s_.plan.mesh, s_.plan.mesh.rank_of(place));
    const double distance = difference(have.dtype, have.data, want_.data(), have.count()).distance;
    report_.gradient[id] = first ? distance * distance : 0;
}

void TwinRank::before(int index) {
    const Instruction& i = at(index);
    infected_ = false;
    edge_ = edge(index);
    const bool reads_whole = i.opcode != Opcode::kernel || i.op == none || own_kernel(i);
    for_each_access(class_, i, [&](const Operand& operand, bool reads, bool writes) {
        if (!reads) return;
        infected_ |= note_of(operand).dirty;
        const size_t which = &operand - i.operands.data();
        if (operand.value != none && encoded_[operand.value]) keep_encoded(index, which);
        if (reads_whole && !writes) settle(index, which);
        if (operand.value != none) add_gradient(index, which);
    });
    if (infected_ && !edge_.empty()) report_.dirty_edges.insert(edge_);
    weigh_terms(index);
    injector_.before(s_.actual, index);
}

/// Computes the tolerance for 16-bit terms of a sum over ranks: each rank's term is off by 1/sqrt(12) of a unit in the
/// last place, and may be larger than the sum. The other ranks' terms are assumed to be as large as this rank's.
void TwinRank::weigh_terms(int index) {
    const Instruction& i = at(index);
    rounded_.assign(i.operands.size(), 0);
    if (i.opcode != Opcode::all_reduce && i.opcode != Opcode::reduce_scatter) return;
    const double ranks = std::sqrt(static_cast<double>(s_.plan.mesh.size(i.axis)) / 12);
    for (size_t in = i.operands.size() > 2 ? 2 : 0; in + 1 < i.operands.size(); in += 2) {
        const Tensor& term = s_.twin.operand(index, in);
        if (size_of(term.dtype) != 2) continue;
        const double norm = difference(term.dtype, term.data, term.data, term.count()).norm;
        rounded_[in + 1] = ranks * epsilon_of(term.dtype) * norm;
    }
}

void TwinRank::after(int index) {
    injector_.after(s_.actual, index);
    s_.twin.issue(index);
    s_.echo.issue(index);
    const Instruction& i = at(index);
    if (i.opcode == Opcode::all_reduce && i.operands.size() > 2) {  // several values in one message: an output for each
        for (size_t which = 3; which < i.operands.size(); which += 2) look(index, which);
    } else {
        for_each_access(class_, i, [&](const Operand& operand, bool, bool writes) {
            if (writes && operand.value != none) look(index, &operand - i.operands.data());
        });
    }
    follow(index);
}

/// Copies the rank's outputs of an instruction to the echo, which repeats it, where they differ.
void TwinRank::follow(int index) {
    const Instruction& i = at(index);
    for_each_access(class_, i, [&](const Operand& operand, bool, bool writes) {
        for (size_t which = 0; writes && which < i.operands.size(); ++which) {
            if (&operand != &i.operands[which]) continue;
            const Tensor& have = s_.actual.operand(index, which);
            const Tensor& echo = s_.echo.operand(index, which);
            if (!same_bits(have, echo)) std::memcpy(echo.data, have.data, have.bytes());
        }
    });
}

/// Whether the echo, from the rank's inputs, computes the same output bits as the rank. If not, adds a finding.
bool TwinRank::repeat(int index, size_t which) {
    const Tensor& have = s_.actual.operand(index, which);
    const Tensor& echo = s_.echo.operand(index, which);
    if (same_bits(have, echo)) return true;
    Judged judged;
    judged.far = difference(have.dtype, have.data, echo.data, have.count());
    judged.wrong = judged.exact = true;
    find(index, at(index).operands[which].value, judged).own = true;
    return false;
}

/// Where the rank chose otherwise than the oracle by comparing floats, records the difference and gives the rank the
/// oracle's choice.
void TwinRank::take_choice(int index, size_t which) {
    const Instruction& i = at(index);
    if (i.opcode != Opcode::kernel || i.op == none) return;
    const ValueId id = i.operands[which].value;
    const Op& op = s_.plan.program.op(i.op);
    const std::optional<FloatChoice>& choice = op_def(op.kind).choice;
    const Tensor& have = s_.actual.operand(index, which);
    const Tensor& want = s_.twin.operand(index, which);
    const int64_t micro = i.fragment.micro;
    if (!choice || op.outputs[choice->output] != id || same_bits(have, want)) return;
    std::vector<Shape> shapes;
    for (const ValueId input : op.inputs) {
        const std::optional<Block> piece = block(input, micro);
        if (!piece) return;
        shapes.push_back(piece->shape);
    }
    const std::vector<Rivals> different = choice->differences(op.attributes, shapes, want, have);
    if (different.empty()) return;
    Judged judged;
    judged.far = difference(have.dtype, have.data, want.data, have.count());
    for (const Rivals& rivals : different) {
        OtherChoice& other = report_.choices.emplace_back();
        judged.far.worst = rivals.result;
        judged.far.have = number_at(have.dtype, have.data, rivals.result);
        judged.far.want = number_at(want.dtype, want.data, rivals.result);
        other.finding = finding_of(index, id, judged);
        other.finding.chosen = true;
        other.element = whole_index(id, micro, rivals.result);
        for (size_t k = 0; k < 2; ++k) {
            other.values[k] = op.inputs[choice->operands[k]];
            other.elements[k] = whole_index(other.values[k], micro, k == 0 ? rivals.first : rivals.second);
        }
    }
    std::memcpy(have.data, want.data, have.bytes());
}

/// Compares an operand that the instruction has written with the oracle's value, and with those of twin and echo.
void TwinRank::look(int index, size_t which) {
    const Instruction& i = at(index);
    const Operand& operand = i.operands[which];
    if (operand.value == none) return;
    const Tensor& have = s_.actual.operand(index, which);
    const Tensor& twin = s_.twin.operand(index, which);
    const bool joined = i.opcode == Opcode::all_reduce && i.operands.size() > 2;
    const bool complete = (joined || completes(i, operand)) && cut(operand.value, i.fragment.micro, twin);
    const auto bound = [&](bool of_twin) {
        return complete ? coded_bound(operand.value, i.fragment.micro, of_twin) / margin : 0;
    };
    if (encoded_[operand.value] && completes(i, operand)) keep_encoded(index, which);
    weigh_decoded(index, which);
    Judged replay;
    if (complete) {
        replay = judge(operand.value, twin, want_.data(), true, rounded_[which] + bound(true));
        std::memcpy(twin.data, want_.data(), want_.size());
    }
    const bool own = !repeat(index, which);
    if (complete && !own && !replay.wrong && !infected_) take_choice(index, which);
    // The copy that ends a step writes a param's next value.
    const bool update = i.opcode == Opcode::copy && i.op == none && i.operands[0].value != none;
    const ValueId id = update ? i.operands[0].value : operand.value;
    const bool known = complete || (update && cut(id, -1, twin));
    Judged judged = judge(id, have, twin.data, known, rounded_[which] + bound(false));
    if (complete && coded_[operand.value] != none && !own && !replay.wrong && !judged.wrong)
        std::memcpy(have.data, want_.data(), want_.size());
    if (s_.oracle.uncertain(id) || (!known && s_.oracle.left_out(id))) judged.far.distance = 0, judged.wrong = false;
    count(operand.value, judged, complete);
    if (replay.wrong) find(index, operand.value, replay).planned = true;
    if (judged.wrong && !replay.wrong && !own) find(index, operand.value, judged);
    set_note(operand, {judged.wrong || own, complete ? none : index});
    if (complete && !updates_[operand.value]) add_gradient(index, which);
}

}  // namespace orrery
