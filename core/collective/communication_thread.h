#pragma once
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <limits>
#include <memory>
#include <thread>

#include "collective/forwarding_communicator.h"

namespace orrery {

/// What was done from when to when; equal: nothing was.
struct Interval {
    std::chrono::steady_clock::time_point begin{}, end{};
};

/// Calls that were counted together.
struct CallTimes {
    double seconds = 0;
    double least = std::numeric_limits<double>::infinity();  ///< of one
    int64_t count = 0;

    void add(double call) {
        seconds += call;
        if (call < least) least = call;
        ++count;
    }
};

/// Runs collectives of any number of communicators one after the other, in the order of their issue, beside the
/// thread that issues them. That order is the one of calls that end inline, so a plan that ends with those ends here.
/// Allocates nothing. One thread issues.
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

    CommunicationThread();
    /// Waits for what was issued: abort its communicators first where that may not end.
    ~CommunicationThread();
    CommunicationThread(const CommunicationThread&) = delete;
    CommunicationThread& operator=(const CommunicationThread&) = delete;

    /// What the next call is to whoever asks for the call at hand: an instruction.
    /// How long it takes is added to `times`, and when it ran is written to `when`; who waits for the call may read
    /// them.
    void mark(int instruction, CallTimes* times = nullptr, Interval* when = nullptr) {
        mark_ = instruction;
        times_ = times;
        when_ = when;
    }
    /// The mark of the call that runs, or that failed; -1 when there is none. Any thread may ask.
    int at_hand() const { return at_hand_.load(std::memory_order_relaxed); }
    /// Waits only where all slots are under way. Throws the error of a call before it. Returns the ticket of the call.
    uint64_t issue(Opcode opcode, Communicator& to, const Tensor& in, const Tensor& out, ReduceOp op);
    bool idle() const { return finished_.load(std::memory_order_acquire) == issued_; }
    /// Both throw the error of the first call that failed, up to this ticket; what came behind it was not begun.
    bool done(uint64_t ticket) const;
    void wait(uint64_t ticket) const;
    /// Waits for all that was issued.
    void drain() const { wait(issued_); }

private:
    static constexpr uint64_t slots = 64;
    static constexpr uint64_t stop = ~uint64_t{0};

    void work();
    void block(uint64_t ticket) const;
    void rethrow(uint64_t ticket) const;

    std::array<Call, slots> calls_;
    int mark_ = -1;
    CallTimes* times_ = nullptr;
    Interval* when_ = nullptr;
    std::atomic<int> at_hand_{-1};
    uint64_t issued_ = 0;             ///< by the issuing thread
    std::atomic<uint64_t> begun_{0};  ///< what the thread may take up to, or stop
    std::atomic<uint64_t> finished_{0};
    std::atomic<uint64_t> failed_{stop};  ///< the first call that failed
    std::exception_ptr error_;            ///< of it, written before
    std::thread thread_;
};

/// A communicator whose collectives run on a CommunicationThread. Messages, and broadcasts, which no plan has, wait for
/// them and run on the caller.
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
