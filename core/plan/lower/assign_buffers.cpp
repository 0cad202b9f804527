// The part of Emitter that assigns each value a buffer, a new one or that of another value.
#include <algorithm>

#include "plan/access.h"
#include "plan/lower/buffers.h"
#include "plan/lower/emit.h"
#include "plan/opening.h"
#include "plan/repeat.h"

namespace orrery::lowering {

namespace {

BufferUse use_of(Role role) {
    switch (role) {
        case Role::input: return BufferUse::input;
        case Role::param: return BufferUse::param;
        case Role::state: return BufferUse::state;
        case Role::temporary: break;
    }
    return BufferUse::activation;
}

}  // namespace

/// Adds a buffer and returns its index. `once`: all micro-batches share it, even if the first of them makes it.
int Emitter::new_buffer(int64_t bytes, ValueId value, BufferUse use, bool once) {
    const bool each = at_ && at_->micro >= 0 && !once;
    made_by_.push_back(each ? MadeBy{at_->op, at_->part, made_here_++, at_->micro} : MadeBy{});
    Buffer buffer;
    buffer.bytes = bytes;
    buffer.value = value;
    buffer.use = use;
    buffer.first = -1;
    buffer.last = -1;
    out_.buffers.push_back(buffer);
    return std::ssize(out_.buffers) - 1;
}

int Emitter::persistent_buffer(int64_t offset, int64_t bytes, ValueId value, BufferUse use) {
    const int id = new_buffer(bytes, value, use);
    out_.buffers.back().arena = Arena::persistent;
    out_.buffers.back().offset = offset;
    out_.persistent_bytes += aligned(bytes);
    return id;
}

Operand Emitter::temporary(TensorType type, ValueId value) {
    const int buffer = new_buffer(type.bytes(), value, BufferUse::activation);
    return {buffer, 0, std::move(type), value};
}

/// Local type of a value in micro-batch `micro`, or (-1) of all micro-batches, for readers that run once per step.
TensorType Emitter::type(ValueId id, int64_t micro) const {
    TensorType type = roles_.value(id).type;
    if (micro < 0 && roles_.value(id).gathered) type.shape[roles_.over_micro(id).dim] *= roles_.micros;
    return type;
}

/// Assigns places in the persistent arena. Inputs are next to each other, so that the host fills them with one copy.
void Emitter::place_persistent() {
    const auto each = [&](auto place) {
        for (ValueId id = 0; id < std::ssize(program().values); ++id)
            if (program().values[id].role != Role::temporary && roles_.holds(id)) place(program().values[id], id);
    };
    int64_t inputs = 0;
    each([&](const Value& v, ValueId id) { inputs += v.role == Role::input ? aligned(type(id, -1).bytes()) : 0; });
    int64_t next = inputs > 0 ? persistent_.place_block("inputs", inputs, out_.stage) : 0;
    each([&](const Value& v, ValueId id) {
        TensorType whole = type(id, -1);
        const int64_t bytes = whole.bytes();
        const bool input = v.role == Role::input;
        const int64_t offset = input ? next : persistent_.place(v.name, bytes, out_.stage);
        next += input ? aligned(bytes) : 0;
        const int buffer = persistent_buffer(offset, bytes, id, use_of(v.role));
        spot(roles_.instance(id, -1)) = {buffer, 0, true};
        out_.places.push_back({buffer, 0, std::move(whole), id});
    });
}

/// Places results next to each other, the smallest first, so that the host reads the small ones with one copy. Results
/// made in other buffers, such as in a bucket or over a param, are copied at the end of the step.
void Emitter::place_results() {
    std::vector<std::pair<int64_t, ValueId>> made;  // (size in bytes, value) of each result
    for (const Result& result : roles_.results) {
        const bool known =
            std::any_of(made.begin(), made.end(), [&](const auto& m) { return m.second == result.value; });
        if (program().value(result.value).role == Role::temporary && !known)
            made.emplace_back(type(result.value, -1).bytes(), result.value);
    }
    std::stable_sort(made.begin(), made.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    int64_t all = 0;
    for (const auto& [bytes, id] : made) all += aligned(bytes);
    int64_t next = all > 0 ? persistent_.place_block("results", all, out_.stage) : 0;
    for (const auto& [bytes, id] : made) {
        const int buffer = persistent_buffer(next, bytes, id, BufferUse::result);
        next += aligned(bytes);
        Operand place{buffer, 0, type(id, -1), id};
        out_.places.push_back(place);
        const ValueRole& role = roles_.value(id);
        const bool own = role.alias == none && role.sum == none && update_target_[id] == none;
        Spot& here = spot(roles_.instance(id, -1));
        if (own && here.buffer == none) {
            here = {buffer, 0, false};
        } else {
            copies_.emplace_back(id, std::move(place));
        }
    }
}

void Emitter::place_buckets() {
    for (const Bucket& bucket : order_.buckets) {
        const ValueId first = program().op(bucket.members.front().op).inputs[0];
        const int in = new_buffer(bucket.bytes, first, BufferUse::gradient);
        const bool in_place = contract(bucket.axis).in_place;
        const int out = in_place ? in : new_buffer(bucket.bytes, first, BufferUse::gradient);
        for (const Bucket::Member& member : bucket.members) {
            const Op& op = program().op(member.op);
            spot(roles_.find(op.inputs[0], -1).instance) = {in, member.offset, false};
            spot(roles_.instance(op.outputs[0], -1)) = {out, member.offset, false};
        }
    }
}

/// Marks gradients of params, the values that they are summed from, and the outputs of collectives on them.
void Emitter::find_gradients() {
    gradient_.assign(program().values.size(), 0);
    std::vector<ValueId> open;
    auto mark = [&](ValueId id) {
        if (gradient_[id]) return;
        gradient_[id] = 1;
        open.push_back(id);
    };
    for (ValueId param : program().params())
        if (const ValueId grad = program().grad_of(param); grad != none) mark(grad);
    while (!open.empty()) {
        const ValueId id = open.back();
        open.pop_back();
        const OpId maker = program().value(id).op;
        if (maker != none && (roles_.collective(program().op(maker)) || roles_.of(program().op(maker)).absorbed))
            for (ValueId input : program().op(maker).inputs) mark(input);
        for (OpId reader : roles_.readers(id).ops)
            if (roles_.collective(program().op(reader))) mark(program().op(reader).outputs[0]);
    }
}

/// The denominator of the share by which buffers of overlapping messages may enlarge the scratch arena: 1/32.
constexpr int64_t most_more_memory = 32;

/// The buffers of queued gradient messages to be extended until `end`, the last instruction of the loop. Otherwise,
/// kernels of the last micro-batch that reuse them would wait for the messages.
std::vector<size_t> Emitter::beside_messages(int end) const {
    std::vector<size_t> longer;
    for (int at = repeats() ? out_.repeat.end : 0; at < end; ++at) {
        const Instruction& i = out_.stream[at];
        if (i.axis == none || i.fragment.micro >= 0 || is_message(i.opcode) || !contract(i.axis).queued) continue;
        for (const Operand& o : i.operands) {
            const Buffer& b = out_.buffers[o.buffer];
            if (b.arena == Arena::scratch && b.frames == none && b.last < end) longer.push_back(o.buffer);
        }
    }
    return longer;
}

/// Gives the messages of an opening queues of their own, since they have communicators of their own: that a later
/// message is complete does not say that they are. Keeps their buffers alive until the opening ends, so that none of
/// its kernels waits for a message.
void Emitter::set_apart_opening() {
    const int opened = opening(program(), out_);
    for (int i = 0; i < opened; ++i) {
        Instruction& instruction = out_.stream[i];
        if (instruction.axis != none) instruction.queue = further_queue(instruction.axis, none, Opcode::copy);
        for (const Operand& operand : instruction.operands) {
            Buffer& b = out_.buffers[operand.buffer];
            if (b.arena == Arena::scratch) b.last = std::max(b.last, opened - 1);
        }
    }
}

/// Assigns offsets in the scratch arena. Keeps messages' buffers alive until the loop ends if that costs little memory.
void Emitter::place_scratch() {
    std::vector<Lifetime> lifetimes;
    std::vector<size_t> ids, index(out_.buffers.size());
    for (size_t i = 0; i < out_.buffers.size(); ++i) {
        const Buffer& b = out_.buffers[i];
        if (b.arena != Arena::scratch || b.first < 0 || b.frames != none) continue;
        index[i] = lifetimes.size();
        lifetimes.push_back({b.bytes + slack(b), b.first, b.last});
        ids.push_back(i);
    }
    if (repeats()) {
        const std::vector<Lifetime> pools = pool_lifetimes(out_);
        lifetimes.insert(lifetimes.end(), pools.begin(), pools.end());
    }
    Placed placed = orrery::place_buffers(lifetimes);
    const auto behind_loop = std::find_if(out_.stream.rbegin(), out_.stream.rend(),
                                          [](const Instruction& i) { return i.fragment.micro >= 0; });
    const int end = static_cast<int>(out_.stream.rend() - behind_loop) - 1;
    if (const std::vector<size_t> longer = beside_messages(end); !longer.empty()) {
        for (const size_t buffer : longer) lifetimes[index[buffer]].last = end;
        Placed apart = orrery::place_buffers(lifetimes);
        if (apart.bytes <= placed.bytes + placed.bytes / most_more_memory) {
            for (const size_t buffer : longer) out_.buffers[buffer].last = end;
            placed = std::move(apart);
        }
    }
    for (Frames& f : out_.frames) f.offset = placed.offsets[ids.size() + f.pool];
    for (Buffer& b : out_.buffers)
        if (b.frames != none) b.offset = address(out_, {static_cast<int>(&b - out_.buffers.data()), 0, {}, none, 0}, 0);
    for (size_t i = 0; i < ids.size(); ++i) {
        Buffer& b = out_.buffers[ids[i]];
        b.offset = placed.offsets[i];
        if (slack(b) > 0) b.offset = aligned(b.offset, scratch_alignment);
    }
    out_.scratch_bytes = placed.bytes;
    out_.scratch_floor = placed.floor;
}

/// Whether an output may overwrite operand `input`, which must have no further readers and fill its whole buffer.
bool Emitter::take_over(const Step& step, const Operand& in, int input, int64_t bytes,
                        const std::vector<Operand>& reads) {
    const Buffer& buffer = out_.buffers[in.buffer];
    const ValueId id = roles_.reads(step.op)[input];
    if (buffer.arena != Arena::scratch || in.offset != 0 || buffer.bytes != bytes || in.type.bytes() != bytes)
        return false;
    const int instance = roles_.find(id, step.micro).instance;
    if (uses(instance) > 0 || sent_[instance]) return false;
    return std::count_if(reads.begin(), reads.end(), [&](const Operand& o) { return o.buffer == in.buffer; }) == 1;
}

/// The buffer of the param or state that an output updates, if it can be written now; else none.
int Emitter::update_place(const Step& step, size_t output, const std::vector<Operand>& reads,
                          const std::vector<std::pair<int, int>>& in_place) {
    const ValueId id = program().op(step.op).outputs[output];
    const ValueId target = update_target_[id];
    if (target == none || step.micro >= 0) return none;
    // Other messages of the group of a roll may still read the old value.
    if (exchanges_blocks(roles_.def(step.op), program().op(step.op))) return none;
    const int instance = roles_.instance(target, -1);
    if (uses(instance) > 0 || roles_.value(target).type != roles_.value(id).type) return none;
    const int place = spot(instance).buffer;
    for (size_t i = 0; i < reads.size(); ++i) {
        if (reads[i].buffer != place) continue;
        const bool may =
            std::find(in_place.begin(), in_place.end(),
                      std::pair<int, int>(static_cast<int>(output), static_cast<int>(i))) != in_place.end();
        if (!may || reads[i].type.bytes() != roles_.value(id).type.bytes()) return none;
    }
    updated_[id] = 1;
    return place;
}

Emitter::Target Emitter::target(const Step& step, size_t output, const std::vector<Operand>& reads,
                                const std::vector<std::pair<int, int>>& in_place) {
    const Op& op = program().op(step.op);
    const ValueId id = op.outputs[output];
    const ValueRole& role = roles_.value(id);
    const Ref ref = roles_.find(id, step.micro);
    Spot& here = spot(ref.instance);
    const ValueId held = role.sum != none ? role.sum : id;
    if (here.buffer == none) {
        const int64_t bytes = role.gathered ? role.whole_bytes : role.type.bytes();
        here.buffer = update_place(step, output, reads, in_place);
        for (const auto& [out, in] : in_place) {
            if (here.buffer != none || role.gathered || out != static_cast<int>(output)) continue;
            if (in >= std::ssize(reads)) continue;  // operand `in` is optional and missing
            const Operand& from = reads[in];
            if (take_over(step, from, in, bytes, reads)) here.buffer = from.buffer;
        }
        if (here.buffer == none)
            here.buffer =
                new_buffer(bytes, held, gradient_[held] ? BufferUse::gradient : BufferUse::activation, !ref.each);
    }
    Target target{held, {here.buffer, here.offset + ref.offset, role.type, held, step_of(ref)}, false};
    target.add = here.written && !role.gathered && (role.sum != none || (role.accumulated && !role.per_micro));
    here.written = true;
    return target;
}

/// Keeps the buffer of each send until this rank knows that the message has arrived. A receive that reused the buffer
/// would wait for the peer, which may wait for this rank in the same way.
void Emitter::keep_sent() {
    const int end = std::ssize(out_.stream) - 1;
    for (size_t at = 0; at < order_.steps.size(); ++at) {
        const Step& s = order_.steps[at];
        if (s.bucket != none || !is_transfer(roles_.def(s.op)) || !roles_.sends(s.op)) continue;
        const auto found = order_.arrived_by.find(at);
        const int until = found == order_.arrived_by.end() ? end : first_of_step_[found->second];
        const Instruction& send = out_.stream[first_of_step_[at]];
        Buffer& buffer = out_.buffers[send.operands[0].buffer];
        buffer.last = std::max(buffer.last, until);
    }
}

/// Retains the buffer of a sent block of a roll until the received block is used. If a kernel in between got the same
/// memory, it would wait for the messages instead of overlapping with them.
void Emitter::keep_rolled() {
    std::vector<int> next(out_.buffers.size(), none);  // by buffer: the next instruction that uses it
    for (size_t at = out_.stream.size(); at-- > 0;) {
        const Instruction& i = out_.stream[at];
        if (i.opcode == Opcode::receive && i.relative && contract(i.axis).queued) {
            int& last = out_.buffers[out_.stream[at - 1].operands[0].buffer].last;
            last = std::max(last, next[i.operands[0].buffer] - 1);
        }
        for (const Operand& operand : i.operands) next[operand.buffer] = static_cast<int>(at);
    }
}

/// Keeps buffers of concurrent messages until their group ends. Adjacent messages form a group, as in the executor.
void Emitter::keep_groups() {
    int end = none;
    for (size_t at = out_.stream.size(); at-- > 0;) {
        const Instruction& in = out_.stream[at];
        const bool message = in.opcode == Opcode::send || in.opcode == Opcode::receive;
        if (!message || !contract(in.axis).groups_messages()) {
            end = none;
            continue;
        }
        if (end == none || out_.stream[at + 1].axis != in.axis) end = at;
        Buffer& buffer = out_.buffers[in.operands[0].buffer];
        buffer.last = std::max(buffer.last, end);
    }
}

}  // namespace orrery::lowering
