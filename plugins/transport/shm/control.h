#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "memory.h"

/// The block of memory through which the members of an shm group meet. It is initially zero.
namespace orrery::shm {

/// A counter that others wait for, with the number of sleeping waiters.
struct Counter {
    std::atomic<uint32_t> value;
    std::atomic<uint32_t> sleepers;
};

constexpr int64_t inline_bytes = 40;

/// A member's data for a collective. Two of them alternate: a member that posts number s+2 has seen all others at s+1,
/// so no member still reads number s.
struct alignas(64) Post {
    Counter arrived;  ///< number of the last collective that was posted here
    uint8_t op;
    uint8_t dtype;
    int16_t detail;  ///< reduce op or root
    int64_t count;
    union {
        struct {
            int32_t in_arena;
            int32_t out_arena;
            int64_t in_offset;
            int64_t out_offset;
        };
        char payload[inline_bytes];  ///< a small collective's data
    };
};
static_assert(sizeof(Post) == 64 && std::atomic<uint32_t>::is_always_lock_free);

struct alignas(64) Member {
    Post post[2];
    alignas(64) Counter finished;  ///< number of the last collective whose part is done
    std::atomic<uint32_t> left;    ///< 1 when it takes no further part
};

constexpr uint32_t lane_slots = 16;
constexpr int64_t small_bytes = 4096;

struct Message {
    int64_t tag;
    int64_t bytes;
    int64_t offset;
    int32_t arena;
};

/// Where a lane continues from message `first` on, after all its slots were in use: in a file of the sender's.
struct Link {
    std::atomic<uint32_t> set;
    uint32_t first;
    uint32_t slots;
    int32_t fd;
};

/// Messages from one member to another. The receiver copies from the sender's arena.
struct Lane {
    alignas(64) Counter posted;
    alignas(64) Counter delivered;
    alignas(64) Link next;
    alignas(64) Message slots[lane_slots];
};

/// Header of the block; the arrays follow it.
struct alignas(64) Header {
    std::atomic<uint32_t> abort_state;  ///< 0 none, 1 being written, 2 readable
    char abort_text[508];
};

/// One member's view of the block: addresses of its parts, and waits.
class Control {
public:
    /// Collective over the group. `pids`: by member; threads of one process share one mapping.
    Control(const Group& group, Rendezvous& rendezvous, const std::vector<int64_t>& pids, const std::string& name,
            std::chrono::milliseconds timeout);
    ~Control();
    Control(const Control&) = delete;

    Member& member(int i) const { return members_[i]; }
    /// `small_bytes` of payload that belong to the member's post of this parity.
    char* small(int member, uint32_t parity) const { return small_ + (2 * member + parity) * small_bytes; }
    Lane& lane(int from, int to) const { return lanes_[from * group_.size() + to]; }

    /// Sets the counter and wakes its sleepers.
    void publish(Counter& counter, uint32_t value) const {
        // There is no fence between the store and the load, which saves 30 ns a call. A member that falls asleep in
        // between is not woken, but wakes by itself soon.
        counter.value.store(value, std::memory_order_release);
        if (counter.sleepers.load(std::memory_order_relaxed) != 0) wake(counter);
    }
    /// Waits until the counter has reached `value`. Throws Fault::peer naming `op` and the missing member.
    void wait(const Counter& counter, uint32_t value, int member, const char* op, int64_t sequence) const {
        if (static_cast<int32_t>(counter.value.load(std::memory_order_acquire) - value) >= 0) return;
        wait_long(const_cast<Counter&>(counter), value, member, op, sequence);
    }
    static void wake(Counter& counter);
    void abort(std::string_view reason);
    /// Publishes the reason of an abort; the first one counts for all members.
    void publish(const std::string& why) const;
    /// Throws Fault::peer once a member has aborted.
    void enter(const char* op, int64_t sequence) const {
        if (header_->abort_state.load(std::memory_order_acquire) == 2) fail(op, sequence, header_->abort_text);
    }

private:
    void wait_long(Counter& counter, uint32_t value, int member, const char* op, int64_t sequence) const;
    /// Why a wait for `member` since `start` cannot succeed, "" while it can. A member that left after its part was
    /// done fails only those that wait for itself.
    std::string hopeless(int member, std::chrono::steady_clock::time_point start) const;
    [[noreturn]] void fail(const char* op, int64_t sequence, const std::string& why) const;

    const Group& group_;
    const Rendezvous& rendezvous_;
    const std::chrono::milliseconds timeout_;
    std::shared_ptr<Mapping> mapping_;
    std::vector<int64_t> pids_;
    std::vector<int> pidfds_;
    Header* header_ = nullptr;
    Member* members_ = nullptr;
    Lane* lanes_ = nullptr;
    char* small_ = nullptr;
};

}  // namespace orrery::shm
