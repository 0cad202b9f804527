#include "collective/chunk_runner.h"

#include <algorithm>

#include "orrery/p2p.h"

namespace orrery {

namespace {
constexpr int64_t ahead = 2;  ///< number of segments that a member receives at a time
}

ChunkRunner::ChunkRunner(ChunkTable table, int me, int64_t segment_bytes, bool receives_block)
    : table_(std::move(table)),
      messages_(messages_of(table_, me)),
      segment_bytes_(segment_bytes),
      receives_block_(receives_block) {}

std::pair<char*, int64_t> ChunkRunner::place(const Call& call, const ChunkMessage& m) const {
    const auto [begin, first] = table_.range(call.count, m.first);
    const auto [last_begin, last] = table_.range(call.count, m.first + m.count - 1);
    const int64_t size = size_of(call.dtype);
    return {call.data + begin * size, (last_begin + last - begin) * size};
}

int64_t ChunkRunner::segment_of(int64_t bytes) const {
    return segment_bytes_ > 0 && !receives_block_ ? std::min(segment_bytes_, bytes) : bytes;
}

int64_t ChunkRunner::segments(int64_t bytes) const {
    return bytes == 0 ? 0 : (bytes + segment_of(bytes) - 1) / segment_of(bytes);
}

uint64_t ChunkRunner::part(const ChunkMessage& m, int64_t segment) {
    return static_cast<uint64_t>(m.step) << 28 | static_cast<uint64_t>(m.wave) << 16 | static_cast<uint64_t>(segment);
}

/// Allocates scratch memory for the messages that are reduced, enough for the step of the table with the largest ones.
void ChunkRunner::reserve(const Call& call) {
    size_t most = 0, step = 0;
    for (size_t i = 0; i < messages_.size(); ++i) {
        const ChunkMessage& m = messages_[i];
        if (i > 0 && m.step != messages_[i - 1].step) step = 0;
        if (m.reduces) step += static_cast<size_t>(room_for(m, place(call, m).second));
        most = std::max(most, step);
    }
    if (scratch_.size() < most) scratch_.resize(most);
}

int64_t ChunkRunner::room_for(const ChunkMessage& m, int64_t bytes) const {
    const int64_t room = m.staged ? bytes : std::min(bytes, ahead * segment_of(bytes));
    return (room + 63) / 64 * 64;
}

void ChunkRunner::run(ChunkWire& wire, DType dtype, ReduceOp op, void* data, int64_t count) {
    const Call call{wire, dtype, op, static_cast<char*>(data), count};
    reserve(call);
    staged_.clear();  // removes messages that a failed call may have left
    used_ = 0;
    for (size_t begin = 0, end; begin < messages_.size(); begin = end) {
        end = begin;
        while (end < messages_.size() && messages_[end].step == messages_[begin].step &&
               messages_[end].wave == messages_[begin].wave)
            ++end;
        wave(call, begin, end);
        if (end == messages_.size() || messages_[end].step != messages_[begin].step) land(call);
    }
}

void ChunkRunner::wave(const Call& call, size_t begin, size_t end) {
    incoming_.clear();
    sends_.clear();
    receives_.clear();
    for (size_t i = begin; i < end; ++i)
        if (!messages_[i].sends) open(call, messages_[i]);
    call.wire.begin_group();
    if (!receives_block_)
        for (Incoming& in : incoming_) post(call, in, in.message->reduces && !in.message->staged ? ahead : INT64_MAX);
    for (size_t i = begin; i < end; ++i) {
        const ChunkMessage& m = messages_[i];
        if (!m.sends) continue;
        const auto [data, bytes] = place(call, m);
        const int64_t segment = segment_of(bytes);
        for (int64_t g = 0; g < segments(bytes); ++g)
            sends_.push_back(
                call.wire.send(m.peer, data + g * segment, std::min(segment, bytes - g * segment), part(m, g)));
    }
    if (receives_block_)
        for (Incoming& in : incoming_) post(call, in, INT64_MAX);
    call.wire.end_group();
    for (Incoming& in : incoming_) take(call, in);
    for (const uint64_t ticket : sends_) call.wire.finish(ticket);
}

void ChunkRunner::open(const Call& call, const ChunkMessage& message) {
    const auto [to, bytes] = place(call, message);
    Incoming in{&message, to, to, bytes, 0, 0};
    if (message.reduces) {
        in.room = scratch_.data() + used_;
        used_ += static_cast<size_t>(room_for(message, bytes));
    }
    in.first = receives_.size();
    receives_.resize(receives_.size() + static_cast<size_t>(segments(bytes)));
    incoming_.push_back(in);
    if (message.staged) staged_.push_back(in);
}

void ChunkRunner::post(const Call& call, Incoming& in, int64_t until) {
    const ChunkMessage& m = *in.message;
    const int64_t segment = segment_of(in.bytes);
    for (; in.posted < std::min(until, segments(in.bytes)); ++in.posted) {
        const int64_t slot = m.reduces && !m.staged ? in.posted % ahead : in.posted;
        receives_[in.first + static_cast<size_t>(in.posted)] = call.wire.receive(
            m.peer, in.room + slot * segment, std::min(segment, in.bytes - in.posted * segment), part(m, in.posted));
    }
}

void ChunkRunner::take(const Call& call, Incoming& in) {
    const ChunkMessage& m = *in.message;
    const int64_t segment = segment_of(in.bytes);
    for (int64_t g = 0; g < segments(in.bytes); ++g) {
        post(call, in, g + 1);
        call.wire.finish(receives_[in.first + static_cast<size_t>(g)]);
        if (!m.reduces || m.staged) continue;
        const int64_t bytes = std::min(segment, in.bytes - g * segment);
        void* const to = in.to + g * segment;
        const void* const both[] = {to, in.room + g % ahead * segment};
        reduce(call.dtype, call.op, both, std::span(&to, 1), bytes / size_of(call.dtype));
        post(call, in, g + 1 + ahead);
    }
}

/// Adds the staged messages to their chunks at the end of a step, when its sends no longer read the chunks.
void ChunkRunner::land(const Call& call) {
    std::sort(staged_.begin(), staged_.end(),
              [](const Incoming& a, const Incoming& b) { return a.message->order < b.message->order; });
    for (const Incoming& in : staged_) {
        void* const to = in.to;
        const void* const both[] = {to, in.room};
        reduce(call.dtype, call.op, both, std::span(&to, 1), in.bytes / size_of(call.dtype));
    }
    staged_.clear();
    used_ = 0;
}

}  // namespace orrery
