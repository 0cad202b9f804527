// One NCCL communicator whose calls block for a limited time only, and which ends when the job loses a rank.
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

    /// Starts NCCL among the group's members; returns when all have come. Throws Fault::peer on timeout or a lost rank.
    /// `key`: the rendezvous' counter of aborts and questions. The group must outlive the handle.
    Handle(int device, const Group& group, const ncclUniqueId& id, Rendezvous& rendezvous, std::string key,
           Milliseconds timeout);
    ~Handle();
    Handle(const Handle&) = delete;
    Handle& operator=(const Handle&) = delete;

    /// Makes NCCL calls, `ncclResult_t(ncclComm_t)`, and waits until NCCL has accepted them. Throws fail(what). `who`
    /// is called when that takes too long, and returns a text that says which ranks it waits for.
    template <class Calls, class Who>
    void call(const std::string& what, Calls calls, Who who) {
        ncclResult_t status;
        {
            const std::lock_guard lock(calls_);  // no abort may free the communicator meanwhile
            if (over_) fail(what);
            status = calls(comm_);
        }
        settle(status, what, who);
    }
    /// Publishes how many collectives this member has called.
    void at(int64_t collectives) { at_ = collectives; }
    /// Asks the other members for their progress, for half a second at most: "rank 1 has not come to it".
    std::string behind(int64_t collective);
    /// Why the communicator has ended, "" when it has not. May be called from any thread; costs one atomic load.
    std::string over() const;
    /// Ends the communicator's kernels, here and, with `tell`, on the other members, which the watching thread
    /// notifies. Does not wait until they have ended; the destructor does, for a limited time.
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
    int64_t answered_ = 0;  ///< number of answered questions; of the watching thread
    std::timed_mutex calls_;
    mutable std::mutex mutex_;  // guards why_
    std::string why_;
    std::shared_ptr<Release> release_;  ///< written once, when the communicator is released; read by the destructor
    std::jthread watch_;
};

}  // namespace orrery::nccl_transport
