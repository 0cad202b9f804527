#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <limits>
#include <memory>
#include <thread>
#include <vector>

#include "collective/forwarding_communicator.h"

namespace orrery {

/// When a call on the CommunicationThread began and ended. Both are equal if the call has not run.
struct Interval {
    std::chrono::steady_clock::time_point begin{}, end{};
};

struct CallTimes {
    double seconds = 0;
    double least = std::numeric_limits<double>::infinity();  ///< duration of the shortest call, in seconds
    int64_t count = 0;

    void add(double call) {
        seconds += call;
        if (call < least) least = call;
        ++count;
    }
};

/// Runs the collectives of several communicators on its own thread, in the order in which one other thread issues them.
/// Blocking calls would run in that order too, so the thread adds no deadlock. Allocates nothing.
class CommunicationThread {
public:
    struct Call {
        Opcode opcode = Opcode::all_reduce;
        Communicator* to = nullptr;
        Tensor in, out;
        ReduceOp op = ReduceOp::sum;
        int mark = -1;
        CallTimes* times = nullptr;
        Interval* when = nullptr;
    };

    /// `slots`: max number of calls in flight; a further one blocks.
    explicit CommunicationThread(size_t slots = 64);
    /// Waits for all issued calls. Calls that may never complete must be ended before by aborting their communicators.
    ~CommunicationThread();
    CommunicationThread(const CommunicationThread&) = delete;
    CommunicationThread& operator=(const CommunicationThread&) = delete;

    /// Labels the call issued next with an instruction, which at_hand() then reports. Adds the call's duration to
    /// `times`, and records in `when` when it ran. Both may be read after waiting for the call.
    void mark(int instruction, CallTimes* times = nullptr, Interval* when = nullptr) {
        mark_ = instruction;
        times_ = times;
        when_ = when;
    }
    /// Returns the instruction of the call that is running or has failed; -1: none. May be called from any thread.
    int at_hand() const { return at_hand_.load(std::memory_order_relaxed); }
    /// Issues a call; returns its ticket. Blocks only when all slots are in use. Throws the error of an earlier call.
    uint64_t issue(Opcode opcode, Communicator& to, const Tensor& in, const Tensor& out, ReduceOp op);
    bool idle() const { return finished_.load(std::memory_order_acquire) == issued_; }
    /// done() and wait() throw the error of the first failed call up to `ticket`. Calls after a failed one never start.
    bool done(uint64_t ticket) const;
    void wait(uint64_t ticket) const;
    void drain() const { wait(issued_); }

private:
    static constexpr uint64_t stop = ~uint64_t{0};

    void work();
    void block(uint64_t ticket) const;
    void rethrow(uint64_t ticket) const;

    std::vector<Call> calls_;  ///< by ticket modulo their number
    int mark_ = -1;
    CallTimes* times_ = nullptr;
    Interval* when_ = nullptr;
    std::atomic<int> at_hand_{-1};
    uint64_t issued_ = 0;             ///< ticket of the last issued call; used only by the issuing thread
    std::atomic<uint64_t> begun_{0};  ///< last ticket that the thread may run; `stop`: the thread is to end
    std::atomic<uint64_t> finished_{0};
    std::atomic<uint64_t> failed_{stop};  ///< ticket of the first call that failed
    std::exception_ptr error_;            ///< error of the first failed call, written before failed_
    std::thread thread_;
};

/// A communicator whose collectives run on a CommunicationThread. Messages and broadcasts run on the caller's thread
/// and first wait for all issued collectives; plans contain no broadcasts.
class BackgroundCommunicator : public CollectivesCommunicator {
public:
    BackgroundCommunicator(std::unique_ptr<Communicator> inner, CommunicationThread& thread)
        : CollectivesCommunicator(std::move(inner)), thread_(thread) {}

    Event broadcast(const Tensor& tensor, int root, const Event& after) override;
    Event send(const Tensor& tensor, int peer, int64_t tag, const Event& after) override;
    Event receive(const Tensor& tensor, int peer, int64_t tag, const Event& after) override;
    bool done(uint64_t ticket) override { return thread_.done(ticket); }
    void wait(uint64_t ticket) override { thread_.wait(ticket); }

private:
    Event collective(Opcode which, const Tensor& in, const Tensor& out, ReduceOp op, const Event& after) override;

    CommunicationThread& thread_;
};

}  // namespace orrery
