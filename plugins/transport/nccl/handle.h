// One NCCL communicator that never blocks its caller for longer than it says, and ends when the job loses a rank.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "types.h"

namespace orrery::nccl_transport {

class Handle {
public:
    using Milliseconds = std::chrono::milliseconds;

    /// Starts NCCL among the group's members; returns when all are there. Throws Fault::peer on timeout or a lost rank.
    /// `key`: where aborts and questions of any member are counted in the rendezvous. The group outlives the handle.
    Handle(int device, const Group& group, const ncclUniqueId& id, Rendezvous& rendezvous, std::string key,
           Milliseconds timeout);
    ~Handle();
    Handle(const Handle&) = delete;
    Handle& operator=(const Handle&) = delete;

    /// Makes NCCL calls, `ncclResult_t(ncclComm_t)`, and waits until NCCL has taken them. Throws fail(what). `who`:
    /// asked whom it waits for when that takes too long, `std::string()`.
    template <class Calls, class Who>
    void call(const std::string& what, Calls calls, Who who) {
        ncclResult_t status;
        {
            const std::lock_guard lock(calls_);  // no abort frees the communicator meanwhile
            if (over_) fail(what);
            status = calls(comm_);
        }
        settle(status, what, who);
    }
    /// How many collectives this member has called, for others that ask.
    void at(int64_t collectives) { at_ = collectives; }
    /// Asks the other members how far they are, half a second at most: "rank 1 has not come to it".
    std::string behind(int64_t collective);
    /// "" while all is well; otherwise why the communicator is over. Any thread; one atomic load.
    std::string over() const;
    /// Ends the communicator's kernels, here and, with `tell`, on the other members, whom the watching thread tells.
    /// Does not wait until they have ended; the destructor does, for as long as is bearable.
    void end(const std::string& why, bool tell);
    [[noreturn]] void fail(const std::string& what) const;

private:
    void settle(ncclResult_t status, const std::string& what, const std::function<std::string()>& who);
    void watch(std::stop_token stop);
    std::string told();
    void tell_others();
    void start(const ncclUniqueId& id);
    void leave();
    using Clock = std::chrono::steady_clock;
    void release(ncclResult_t (*how)(ncclComm_t), Clock::time_point began);
    void await_release();
    static void before_exit();
    std::string reason(ncclResult_t status) const;
    struct Release;

    const int device_;
    const Group& group_;
    Rendezvous& rendezvous_;
    const std::string key_;
    const Milliseconds timeout_;
    ncclComm_t comm_ = nullptr;
    std::atomic<bool> over_{false}, tells_{false};
    std::atomic<int64_t> at_{0};
    int64_t answered_ = 0;  ///< of the watching thread: questions
    std::timed_mutex calls_;
    mutable std::mutex mutex_;  // guards why_
    std::string why_;
    std::shared_ptr<Release> release_;  ///< written once, by whoever ends it; read by the destructor
    std::jthread watch_;
};

}  // namespace orrery::nccl_transport
