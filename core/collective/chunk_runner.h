#pragma once
#include <cstdint>
#include <cstring>
#include <vector>

#include "plan/chunks/chunks.h"

namespace orrery {

/// Does nothing in place.
inline void copy(void* to, const void* from, int64_t bytes) {
    if (to != from && bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
}

/// What a runner moves bytes with. The memory is in use until finish().
class ChunkWire {
public:
    virtual ~ChunkWire() = default;
    /// `part` is equal at both ends and different for all that is under way between two members.
    virtual uint64_t send(int peer, const void* data, int64_t bytes, uint64_t part) = 0;
    virtual uint64_t receive(int peer, void* data, int64_t bytes, uint64_t part) = 0;
    virtual void finish(uint64_t ticket) = 0;
    /// Sends and receives between the two proceed together.
    virtual void begin_group() {}
    virtual void end_group() {}
};

/// One member's part of a table, over any wire. Segments of a large message are added while the next ones come.
/// Allocates only when a tensor is larger than those before.
class ChunkRunner {
public:
    /// `segment_bytes`: a multiple of 64; 0 sends messages whole. `receives_block`: receive() waits for its message, so
    /// that sends go first and whole messages are received one after the other.
    ChunkRunner(ChunkTable table, int me, int64_t segment_bytes, bool receives_block);

    const ChunkTable& table() const { return table_; }
    /// `data`: all chunks, each member's own parts in place; in the end what the collective gives.
    void run(ChunkWire& wire, DType dtype, ReduceOp op, void* data, int64_t count);

private:
    struct Incoming {
        const ChunkMessage* message;
        char* to;    ///< where it lands or is added
        char* room;  ///< where it comes in
        int64_t bytes;
        int64_t posted = 0;  ///< segments
        size_t first = 0;    ///< of its tickets
    };
    struct Call {
        ChunkWire& wire;
        DType dtype;
        ReduceOp op;
        char* data;
        int64_t count;
    };
    std::pair<char*, int64_t> place(const Call& call, const ChunkMessage& message) const;
    int64_t segment_of(int64_t bytes) const;
    int64_t segments(int64_t bytes) const;
    void reserve(const Call& call);
    int64_t room_for(const ChunkMessage& message, int64_t bytes) const;
    void wave(const Call& call, size_t begin, size_t end);
    void open(const Call& call, const ChunkMessage& message);
    void post(const Call& call, Incoming& incoming, int64_t until);
    void take(const Call& call, Incoming& incoming);
    void land(const Call& call);
    static uint64_t part(const ChunkMessage& message, int64_t segment);

    const ChunkTable table_;
    const std::vector<ChunkMessage> messages_;
    const int64_t segment_bytes_;
    const bool receives_block_;
    std::vector<char> scratch_;
    size_t used_ = 0;                 ///< of scratch_
    std::vector<Incoming> incoming_;  ///< of the wave
    std::vector<Incoming> staged_;    ///< of the step
    std::vector<uint64_t> sends_, receives_;
};

}  // namespace orrery
