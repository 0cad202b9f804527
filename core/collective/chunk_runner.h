#pragma once
#include <cstdint>
#include <cstring>
#include <vector>

#include "plan/chunks/chunks.h"

namespace orrery {

inline void copy(void* to, const void* from, int64_t bytes) {
    if (to != from && bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
}

/// Transfers the messages of a ChunkRunner. The memory of a transfer is in use until finish().
class ChunkWire {
public:
    virtual ~ChunkWire() = default;
    /// Starts a send or receive. `part`: number of the message, unique between two members and equal at both ends.
    virtual uint64_t send(int peer, const void* data, int64_t bytes, uint64_t part) = 0;
    virtual uint64_t receive(int peer, void* data, int64_t bytes, uint64_t part) = 0;
    virtual void finish(uint64_t ticket) = 0;
    /// Sends and receives between begin_group() and end_group() progress together.
    virtual void begin_group() {}
    virtual void end_group() {}
};

/// Runs one member's moves of a chunk table, over any ChunkWire. A large message is cut into segments: one is reduced
/// while later ones arrive. Allocates memory only when a tensor is larger than all before.
class ChunkRunner {
public:
    /// `segment_bytes` is a multiple of 64; 0 sends each message whole. `receives_block`: receive() blocks until its
    /// message has arrived, so sends are issued first and messages are received whole, one after the other.
    ChunkRunner(ChunkTable table, int me, int64_t segment_bytes, bool receives_block);

    const ChunkTable& table() const { return table_; }
    /// Runs the collective. `data`: all chunks, at first with this member's own ones in place, on return the result.
    void run(ChunkWire& wire, DType dtype, ReduceOp op, void* data, int64_t count);

private:
    struct Incoming {
        const ChunkMessage* message;
        char* to;    ///< chunk that the message is copied to or added to
        char* room;  ///< memory that the message is received into, before it is copied or added
        int64_t bytes;
        int64_t posted = 0;  ///< number of segments whose receives have started
        size_t first = 0;    ///< index in receives_ of the first segment's ticket
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
    size_t used_ = 0;                 ///< bytes of scratch_ in use
    std::vector<Incoming> incoming_;  ///< messages received in the current wave (a group of concurrent messages)
    std::vector<Incoming> staged_;    ///< messages to reduce at the end of the step
    std::vector<uint64_t> sends_, receives_;
};

}  // namespace orrery
