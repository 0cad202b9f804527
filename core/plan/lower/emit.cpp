#include "plan/lower/emit.h"

#include <algorithm>
#include <cassert>

#include "ir/op.h"
#include "ir/permutation.h"

namespace orrery::lowering {

namespace {

void append(std::string& key, const Attribute& attribute) {
    if (const bool* flag = std::get_if<bool>(&attribute)) key += *flag ? "true" : "false";
    if (const int64_t* integer = std::get_if<int64_t>(&attribute)) key += std::to_string(*integer);
    if (const double* number = std::get_if<double>(&attribute)) {
        key.append(reinterpret_cast<const char*>(number), sizeof *number);
    }
    if (const std::string* text = std::get_if<std::string>(&attribute)) key += '"' + *text + '"';
    if (const auto* integers = std::get_if<std::vector<int64_t>>(&attribute))
        for (int64_t i : *integers) key += std::to_string(i) + ',';
}

void append(std::string& key, const TensorType& type) {
    key += static_cast<char>('a' + static_cast<int>(type.dtype));
    for (int64_t size : type.shape) key += std::to_string(size) + ',';
    key += ';';
}

void toggle(Attributes& attributes, std::string_view flag) {
    if (attributes.flag(flag)) {
        attributes.erase(flag);
    } else {
        attributes.set(flag, true);
    }
}

/// The shape in which dim `dim` is split into two: [parts, size / parts].
Shape cut(const Shape& shape, size_t dim, int64_t parts) {
    Shape out(shape.begin(), shape.begin() + dim);
    out.push_back(parts);
    out.push_back(shape[dim] / parts);
    out.insert(out.end(), shape.begin() + dim + 1, shape.end());
    return out;
}

/// A permutation of `rank` dims that moves dim `from` to the front.
std::vector<int64_t> to_front(size_t rank, size_t from) {
    std::vector<int64_t> perm{static_cast<int64_t>(from)};
    for (size_t i = 0; i < rank; ++i)
        if (i != from) perm.push_back(i);
    return perm;
}

/// A permutation of `rank` dims that moves the front dim to position `to`.
std::vector<int64_t> from_front(size_t rank, size_t to) {
    std::vector<int64_t> perm;
    for (size_t i = 1; i < rank; ++i) perm.push_back(i);
    perm.insert(perm.begin() + to, 0);
    return perm;
}

Shape permuted(const Shape& shape, const std::vector<int64_t>& perm) {
    Shape out;
    for (int64_t dim : perm) out.push_back(shape[dim]);
    return out;
}

bool contiguous(const Shape& shape, size_t dim) {
    return std::all_of(shape.begin(), shape.begin() + dim, [](int64_t n) { return n == 1; });
}

/// Whether a permutation changes the order of elements in memory.
bool moves(const Shape& shape, const std::vector<int64_t>& perm) {
    int64_t last = -1;
    for (const int64_t dim : perm) {
        if (shape[dim] == 1) continue;
        if (dim < last) return true;
        last = dim;
    }
    return false;
}

/// A local block's shape with a dim of its own for each of `axes`, directly before the rest of the dim that it splits.
struct Blocks {
    Shape shape;
    std::vector<int64_t> to_front;  ///< permutation: the dims of the axes in the given order, then the others

    Blocks(const Shape& local, const Layout& layout, const std::vector<AxisId>& axes, const Mesh& mesh) {
        std::vector<int64_t> places(axes.size()), others;
        for (size_t dim = 0; dim < local.size(); ++dim) {
            int64_t rest = local[dim];
            for (const AxisId axis : layout.splits()[dim]) {
                const auto found = std::find(axes.begin(), axes.end(), axis);
                if (found == axes.end()) continue;
                places[found - axes.begin()] = std::ssize(shape);
                shape.push_back(mesh.size(axis));
                rest /= mesh.size(axis);
            }
            others.push_back(std::ssize(shape));
            shape.push_back(rest);
        }
        to_front = std::move(places);
        to_front.insert(to_front.end(), others.begin(), others.end());
    }
};

Operand viewed(Operand operand, Shape shape) {
    operand.type.shape = std::move(shape);
    return operand;
}

KernelSpec transpose(std::vector<int64_t> perm) { return {"transpose", {{"perm", std::move(perm)}}, {}, {}}; }

}  // namespace

Emitter::Emitter(const LoopAnalysis& roles, Order order, Persistent& persistent, const LowerOptions& options,
                 const Steady* steady, RankClass& out)
    : roles_(roles), order_(std::move(order)), persistent_(persistent), options_(options), steady_(steady), out_(out) {
    spots_.resize(roles.instances);
    sent_.resize(roles.instances, 0);
    update_target_.assign(program().values.size(), none);
    updated_.assign(program().values.size(), 0);
    for (const Update& update : roles_.updates) {
        ValueId& target = update_target_[update.value];
        if (target == none) target = update.target;
    }
}

bool Emitter::run() {
    find_gradients();
    place_persistent();
    place_buckets();
    place_results();
    out_.stream.reserve(order_.steps.size() + roles_.results.size());
    for (const Step& s : order_.steps) {
        first_of_step_.push_back(out_.stream.size());
        at_ = &s;
        made_here_ = 0;
        step(s);
    }
    at_ = nullptr;
    final_copies();
    keep_sent();
    keep_rolled();
    keep_groups();
    std::stable_sort(out_.per_rank.begin(), out_.per_rank.end(),
                     [](const PerRank& a, const PerRank& b) { return a.kernel < b.kernel; });
    if (repeats() && !find_repeat(*steady_, made_by_, out_)) return false;
    set_apart_opening();
    place_scratch();
    return true;
}

const TransportContract& Emitter::contract(AxisId axis) const {
    return options_.contracts.of(roles_.mesh.axis(axis).name);
}

void Emitter::step(const Step& s) {
    const OpDef& def = roles_.def(s.op);
    if (s.bucket != none) {
        joined(s);
    } else if (roles_.sums.count(s.op)) {
        finish_sum(s);
    } else if (is_transfer(def)) {
        transfer(s);
    } else if (roles_.collective(program().op(s.op))) {
        collective(s);
    } else if (def.alias) {
        move(s);
    } else if (def.collective) {
        shard(s);
    } else {
        kernel(s);
    }
}

/// The operand with which an instruction reads a value. Decrements the number of reads that are left.
Operand Emitter::read(ValueId id, int64_t micro) {
    const Ref ref = roles_.find(id, micro);
    const Spot& here = spot(ref.instance);
    if (!here.written) {
        const Value& v = program().value(id);
        throw Error(v.origin, "value '" + v.name + "' (%" + std::to_string(id) +
                                  ") is read before it is made; the "
                                  "schedule or the order of the program's ops is wrong");
    }
    --uses(ref.instance);
    return {here.buffer, here.offset + ref.offset, type(id, micro), id, step_of(ref)};
}

std::vector<Operand> Emitter::read_all(const Step& step) {
    std::vector<Operand> operands;
    for (ValueId id : roles_.reads(step.op)) operands.push_back(read(id, step.micro));
    return operands;
}

Instruction& Emitter::emit(Opcode what, const Step& step, std::vector<Operand> operands) {
    const int index = out_.stream.size();
    for (const Operand& operand : operands) {
        Buffer& buffer = out_.buffers[operand.buffer];
        if (buffer.first < 0) buffer.first = index;
        buffer.last = index;
    }
    Instruction& instruction = out_.stream.emplace_back();
    instruction.opcode = what;
    instruction.operands = std::move(operands);
    instruction.op = step.op;
    instruction.fragment = step.fragment;
    return instruction;
}

/// The workspace in bytes that the device needs for a kernel. Errors of the device get the script line of the op.
int64_t Emitter::workspace_of(const Step& step, const KernelSpec& spec) const {
    if (!options_.workspace) return 0;
    try {
        return options_.workspace(spec);
    } catch (const Error& error) {
        const Origin asked = step.op == none ? Origin{} : program().op(step.op).origin;
        throw Error(asked, error.what(), error.fault());
    }
}

int Emitter::kernel_index(const Step& step, KernelSpec spec, const std::vector<PerRank>& patches) {
    std::string key = spec.op;
    for (const auto& [name, value] : spec.attributes.items()) append(key += ' ' + name + '=', value);
    key += '|';
    for (const TensorType& type : spec.inputs) append(key, type);
    key += '>';
    for (const TensorType& type : spec.outputs) append(key, type);
    for (const PerRank& p : patches)
        key += p.key + std::to_string(p.dim) + '@' + std::to_string(p.axis) + '*' + std::to_string(p.step);
    const auto [found, fresh] = kernel_ids_.try_emplace(std::move(key), out_.kernels.size());
    if (fresh) {
        workspaces_.push_back(workspace_of(step, spec));
        out_.kernels.push_back(std::move(spec));
        for (PerRank patch : patches) {
            patch.kernel = found->second;
            out_.per_rank.push_back(std::move(patch));
        }
    }
    return found->second;
}

void Emitter::emit_kernel(const Step& step, KernelSpec spec, std::vector<PerRank> patches,
                          std::vector<Operand> operands, size_t inputs) {
    for (size_t i = 0; i < operands.size(); ++i) (i < inputs ? spec.inputs : spec.outputs).push_back(operands[i].type);
    const int index = kernel_index(step, std::move(spec), patches);
    const int at = out_.stream.size();
    Instruction& instruction = emit(Opcode::kernel, step, std::move(operands));
    instruction.kernel = index;
    if (const int64_t bytes = workspaces_[index]; bytes > 0) {
        instruction.workspace = new_buffer(bytes, none, BufferUse::workspace);
        out_.buffers.back().first = out_.buffers.back().last = at;
    }
}

/// Sets `global_shape` and `offset` of a kernel with a split operand. The offset depends on micro-batch and rank.
/// `only`: the dim that counts, or -1.
void Emitter::set_global(const Step& step, ValueId operand, int only, Attributes& attributes,
                         std::vector<PerRank>& patches) const {
    const Value& v = program().value(operand);
    const auto& splits = v.layout.splits();
    const auto counts = [&](size_t dim) {
        return !splits[dim].empty() && (only < 0 || dim == static_cast<size_t>(only));
    };
    bool split = false;
    for (size_t dim = 0; dim < splits.size(); ++dim) split |= counts(dim);
    if (!split) return;
    std::vector<int64_t> offset(v.type.shape.size(), 0);
    for (size_t dim = 0; dim < splits.size(); ++dim) {
        if (!counts(dim)) continue;
        int64_t stride = roles_.value(operand).type.shape[dim];
        for (size_t i = splits[dim].size(); i-- > 0; stride *= roles_.mesh.size(splits[dim][i])) {
            if (splits[dim][i] == roles_.micro_axis && !repeats()) {
                offset[dim] += std::max<int64_t>(step.micro, 0) * stride;
            } else if (splits[dim][i] != roles_.micro_axis || step.micro >= 0) {
                patches.push_back({none, "offset", static_cast<int>(dim), splits[dim][i], stride});
            }
        }
    }
    attributes.set("global_shape", v.type.shape);
    attributes.set("offset", std::move(offset));
}

Attributes Emitter::kernel_attributes(const Step& step, std::vector<PerRank>& patches) const {
    const Op& op = program().op(step.op);
    const OpDef& def = roles_.def(op);
    Attributes attributes = op.attributes;
    for (const char* note : {"cause", "keep", "codec"}) attributes.erase(note);
    if (attributes.has("shape") && (op.inputs.size() <= 1 || def.source) && !def.alias)
        attributes.set("shape", roles_.value(op.outputs[0]).type.shape);
    if (def.indexed && (!def.indexed_if || def.indexed_if(op))) {
        const auto& ids = def.indexed->output ? op.outputs : op.inputs;
        set_global(step, ids.at(def.indexed->index), def.indexed_dim, attributes, patches);
    }
    for (size_t i = 0; i < def.swaps.size(); ++i)
        if (roles_.value(op.inputs[i]).swapped) toggle(attributes, def.swaps[i]);
    return attributes;
}

void Emitter::kernel(const Step& step) {
    const Op& op = program().op(step.op);
    const OpDef& def = roles_.def(op);
    std::vector<Operand> operands = read_all(step);
    const size_t inputs = operands.size();
    const std::vector<Operand> reads = operands;
    std::vector<Target> targets;
    for (size_t i = 0; i < op.outputs.size(); ++i) targets.push_back(target(step, i, reads, def.in_place));

    // The kernel either accumulates into all outputs that are sums, or into none.
    bool adds = !def.accumulates.empty();
    for (size_t i = 0; i < targets.size(); ++i) {
        const bool listed = std::find(def.accumulates.begin(), def.accumulates.end(), i) != def.accumulates.end();
        adds = adds && listed == targets[i].add;
    }
    std::vector<Operand> made;
    for (const Target& target : targets)
        made.push_back(target.add && !adds ? temporary(target.place.type, target.value) : target.place);
    operands.insert(operands.end(), made.begin(), made.end());

    KernelSpec spec{op.kind, {}, {}, {}};
    std::vector<PerRank> patches;
    spec.attributes = kernel_attributes(step, patches);
    if (adds) spec.attributes.set("accumulate", true);
    emit_kernel(step, std::move(spec), std::move(patches), std::move(operands), inputs);
    for (size_t i = 0; i < targets.size(); ++i) {
        if (adds) targets[i].add = false;
        finish(step, targets[i], made[i]);
        const ValueRole& role = roles_.value(op.outputs[i]);
        if (role.per_micro && role.accumulated) accumulate(step, op.outputs[i], made[i]);
    }
}

/// Adds the kernel's output `made` to the sum in the target's place, unless the kernel accumulated.
void Emitter::finish(const Step& step, const Target& target, const Operand& made) {
    if (!target.add) return;
    KernelSpec spec{std::string(op_combining(roles_.over_micro(target.value).op)), {}, {}, {}};
    emit_kernel(step, std::move(spec), {}, {target.place, made, target.place}, 2);
}

/// Adds a contribution to the sum over micro-batches, if ops in the loop also read the contribution itself.
void Emitter::accumulate(const Step& step, ValueId value, const Operand& part) {
    Spot& sum = spot(roles_.instance(value, -1));
    if (sum.buffer == none)
        sum.buffer =
            new_buffer(part.type.bytes(), value, gradient_[value] ? BufferUse::gradient : BufferUse::activation, true);
    const Operand place{sum.buffer, sum.offset, part.type, value};
    if (sum.written) {
        finish(step, {value, place, true}, part);
    } else {
        emit(Opcode::copy, step, {part, place});
        sum.written = true;
    }
}

/// Adds those leaves of a sum that kernels did not accumulate.
void Emitter::finish_sum(const Step& step) {
    const ValueId total = program().op(step.op).outputs[0];
    for (const Operand& leaf : read_all(step)) {
        Target all = target(step, 0, {}, {});
        all.value = total;
        all.add = true;
        finish(step, all, leaf);
    }
}

/// Cuts this rank's slice from a value that every member of the axis has in full.
void Emitter::shard(const Step& step) {
    const Op& op = program().op(step.op);
    const AxisId axis = roles_.axis(op);
    const int64_t dim = op.attributes.integer("dim");
    const std::vector<Operand> reads = read_all(step);
    const Target to = target(step, 0, reads, {});
    const Operand made = to.add ? temporary(to.place.type, to.value) : to.place;
    const int64_t size = made.type.shape.at(dim);
    const bool over_micro = axis == roles_.micro_axis;
    KernelSpec spec{"slice", {{"dim", dim}, {"size", size}}, {}, {}};
    const bool written = over_micro && !repeats();
    spec.attributes.set("start", written ? std::max<int64_t>(step.micro, 0) * size : int64_t{0});
    std::vector<PerRank> patches;
    if (!over_micro || (repeats() && step.micro >= 0)) patches.push_back({none, "start", none, axis, size});
    emit_kernel(step, std::move(spec), std::move(patches), {reads[0], made}, 1);
    finish(step, to, made);
    const ValueRole& role = roles_.value(op.outputs[0]);
    if (role.per_micro && role.accumulated) accumulate(step, op.outputs[0], made);
}

/// Copies the input of a reshape to the output, if the output has its own place: in a sum or a gathered value.
void Emitter::move(const Step& step) {
    Operand from = read_all(step)[0];
    const Target to = target(step, 0, {}, {});
    from.type = to.place.type;
    if (to.add) {
        finish(step, to, from);
    } else {
        emit(Opcode::copy, step, {from, to.place});
    }
    const ValueId out = program().op(step.op).outputs[0];
    if (roles_.value(out).per_micro && roles_.value(out).accumulated) accumulate(step, out, from);
}

// Collectives. Communicators work on blocks of the outermost dim, so other dims are packed before and unpacked after.

void Emitter::emit_collective(Opcode what, const Step& step, std::vector<Operand> operands) {
    const Op& op = program().op(step.op);
    Instruction& instruction = emit(what, step, std::move(operands));
    instruction.axis = roles_.axis(op);
    instruction.queue = queue_of(instruction.axis);
    if (what == Opcode::all_reduce || what == Opcode::reduce_scatter) instruction.reduce = reduce_of(op);
}

void Emitter::collective(const Step& step) {
    const std::pair key{step.op, step.micro};
    using Part = Step::Part;
    if (step.part == Part::end || step.part == Part::release) {
        const auto found = underway_.find(key);
        if (found == underway_.end())
            throw Error(program().op(step.op).origin, "invalid order of steps: a collective ends before it begins");
        hold(found->second);
        if (step.part == Part::end) arrive(step, found->second);
        underway_.erase(found);
        return;
    }
    Underway message = send_off(step);
    if (step.part != Part::begin) arrive(step, message);
    if (step.part != Part::whole) underway_.emplace(key, std::move(message));
}

/// Packs the input of a collective and starts its message.
Emitter::Underway Emitter::send_off(const Step& step) {
    const Op& op = program().op(step.op);
    const AxisId axis = roles_.axis(op);
    if (axis == roles_.micro_axis)
        throw Error(op.origin, op.kind + " over micro is not possible: micro-batches run one after the other");
    const std::vector<Operand> reads = read_all(step);
    const Opcode what = roles_.def(op).collective.value_or(Opcode::send);
    const bool reduces = what == Opcode::all_reduce;
    const std::vector<std::pair<int, int>> in_place = reduces && contract(axis).in_place
                                                          ? std::vector<std::pair<int, int>>{{0, 0}}
                                                          : std::vector<std::pair<int, int>>{};
    Underway message;
    message.to = target(step, 0, reads, in_place);
    message.made = message.to.add ? temporary(message.to.place.type, message.to.value) : message.to.place;
    switch (what) {
        case Opcode::all_reduce: emit_collective(what, step, {reads[0], message.made}); break;
        case Opcode::all_gather: gather(step, reads[0], message); break;
        case Opcode::reduce_scatter: scatter(step, reads[0], message.made); break;
        case Opcode::all_to_all: exchange(step, reads[0], message); break;
        case Opcode::send: roll(step, reads[0], message.made); break;
        case Opcode::kernel:
        case Opcode::copy:
        case Opcode::receive: throw Error(op.origin, "unsupported: no instruction for collective '" + op.kind + "'");
    }
    for (const Operand& operand : out_.stream.back().operands) message.buffers.push_back(operand.buffer);
    return message;
}

/// Unpacks the output of a collective, and adds it to its sum.
void Emitter::arrive(const Step& step, const Underway& message) {
    if (!message.perm.empty()) emit_kernel(step, transpose(message.perm), {}, {message.came, message.out}, 1);
    finish(step, message.to, message.made);
    const ValueId id = program().op(step.op).outputs[0];
    if (roles_.value(id).per_micro && roles_.value(id).accumulated) accumulate(step, id, message.made);
}

/// Keeps the buffers of a message alive up to the current instruction.
void Emitter::hold(const Underway& message) {
    const int here = std::ssize(out_.stream) - 1;
    for (int id : message.buffers) {
        Buffer& buffer = out_.buffers[id];
        buffer.last = std::max(buffer.last, here);
    }
}

/// Gathers a dim of size L of P members: [A, L, B] -> [P, A, L, B] -> [A, P L, B].
void Emitter::gather(const Step& step, const Operand& in, Underway& message) {
    const Op& op = program().op(step.op);
    const size_t dim = op.attributes.integer("dim");
    if (contiguous(in.type.shape, dim)) return emit_collective(Opcode::all_gather, step, {in, message.made});
    const int64_t parts = roles_.mesh.size(roles_.axis(op));
    Shape stacked = in.type.shape;
    stacked.insert(stacked.begin(), parts);
    message.came = temporary({in.type.dtype, stacked}, op.outputs[0]);
    message.perm = from_front(stacked.size(), dim);
    message.out = viewed(message.made, permuted(stacked, message.perm));
    emit_collective(Opcode::all_gather, step, {in, message.came});
}

/// Reduces and scatters a dim of size P L over P members: [A, P L, B] -> [P, A, L, B] -> [A, L, B].
void Emitter::scatter(const Step& step, const Operand& in, const Operand& out) {
    const Op& op = program().op(step.op);
    const size_t dim = op.attributes.integer("dim");
    if (contiguous(in.type.shape, dim)) return emit_collective(Opcode::reduce_scatter, step, {in, out});
    const Shape split = cut(in.type.shape, dim, roles_.mesh.size(roles_.axis(op)));
    const std::vector<int64_t> perm = to_front(split.size(), dim);
    const Operand packed = temporary({in.type.dtype, permuted(split, perm)}, op.inputs[0]);
    emit_kernel(step, transpose(perm), {}, {viewed(in, split), packed}, 1);
    emit_collective(Opcode::reduce_scatter, step, {packed, out});
}

/// Moves axes from dims that they split to others: a member receives its block of the dims `to`, and joins blocks along
/// the dims `from`. No dim is both. With axes of P and Q members, from dims 0 and 1 to dim 2:
/// [A, B, P Q L] -> [A, B, P, Q, L] -> [P, Q, A, B, L] -> exchanged -> [P, Q, A, B, L] -> [P A, Q B, L].
void Emitter::exchange(const Step& step, const Operand& in, Underway& message) {
    const Op& op = program().op(step.op);
    const std::vector<AxisId>& axes = roles_.mesh.parts(roles_.axis(op));  // in the order of members
    const Layout &before = program().value(op.inputs[0]).layout, &after = program().value(op.outputs[0]).layout;
    assert(std::none_of(axes.begin(), axes.end(), [&](AxisId left) {
        return std::any_of(axes.begin(), axes.end(),
                           [&](AxisId entered) { return before.at(left).dim == after.at(entered).dim; });
    }));
    const Blocks split(in.type.shape, after, axes, roles_.mesh);
    const Blocks whole(message.made.type.shape, before, axes, roles_.mesh);
    Operand sent = in;
    if (moves(split.shape, split.to_front)) {
        sent = temporary({in.type.dtype, permuted(split.shape, split.to_front)}, op.inputs[0]);
        emit_kernel(step, transpose(split.to_front), {}, {viewed(in, split.shape), sent}, 1);
    }
    const Shape blocks = permuted(split.shape, split.to_front);
    const std::vector<int64_t> perm = inverse(whole.to_front);
    if (!moves(blocks, perm)) return emit_collective(Opcode::all_to_all, step, {sent, message.made});
    message.came = temporary({in.type.dtype, blocks}, op.outputs[0]);
    message.perm = perm;
    message.out = viewed(message.made, permuted(blocks, perm));
    emit_collective(Opcode::all_to_all, step, {sent, message.came});
}

/// Emits several all-reduces as one message. The operands of each member follow the two flat ones.
void Emitter::joined(const Step& step) {
    const Bucket& bucket = order_.buckets[step.bucket];
    std::vector<Operand> members;
    for (const Bucket::Member& member : bucket.members) {
        const Op& op = program().op(member.op);
        members.push_back(read(op.inputs[0], -1));
        Spot& out = spot(roles_.instance(op.outputs[0], -1));
        out.written = true;
        members.push_back({out.buffer, out.offset, roles_.value(op.outputs[0]).type, op.outputs[0]});
    }
    if (bucket.members.size() == 1) return emit_collective(Opcode::all_reduce, step, std::move(members));
    const TensorType flat{bucket.dtype, {bucket.bytes / size_of(bucket.dtype)}};
    std::vector<Operand> operands{{members[0].buffer, 0, flat, none}, {members[1].buffer, 0, flat, none}};
    operands.insert(operands.end(), members.begin(), members.end());
    emit_collective(Opcode::all_reduce, step, std::move(operands));
}

/// Copies results and updates that were not written in place. A copy comes after those that read its destination. A
/// cycle of copies is broken by one copy to a temporary.
void Emitter::final_copies() {
    struct Copy {
        Operand from, to;
    };
    std::vector<Copy> copies;
    auto add = [&](ValueId id, Operand to) {
        Operand from = read(id, -1);
        from.type = to.type;
        if (from.buffer != to.buffer || from.offset != to.offset) copies.push_back({std::move(from), std::move(to)});
    };
    for (const auto& [id, place] : copies_) add(id, place);
    for (const Update& update : roles_.updates) {
        const bool done = updated_[update.value] != 0 && update_target_[update.value] == update.target;
        if (!done)
            add(update.value,
                {spot(roles_.instance(update.target, -1)).buffer, 0, type(update.target, -1), update.target});
    }
    const Step end{none, -1, {Fragment::Kind::backward, -1, 0}, none};
    while (!copies.empty()) {
        auto free = std::find_if(copies.begin(), copies.end(), [&](const Copy& c) {
            return std::none_of(copies.begin(), copies.end(),
                                [&](const Copy& other) { return &other != &c && other.from.buffer == c.to.buffer; });
        });
        if (free == copies.end()) {
            free = copies.begin();
            const Operand aside = temporary(free->from.type, free->from.value);
            emit(Opcode::copy, end, {free->from, aside});
            free->from = aside;
            continue;
        }
        emit(Opcode::copy, end, {free->from, free->to});
        copies.erase(free);
    }
}

}  // namespace orrery::lowering
