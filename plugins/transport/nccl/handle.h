// One NCCL communicator that never blocks its caller for longer than it says, and ends when the job loses a rank.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "types.h"

namespace orrery::nccl_transport {

class Handle {
public:
    using Milliseconds = std::chrono::milliseconds;

    /// Starts NCCL among `ranks` members; returns when all are there. Throws Fault::peer on timeout or a lost rank.
    /// `key`: where an abort of any member is counted in the rendezvous.
    Handle(int device, int ranks, int me, const ncclUniqueId& id, Rendezvous& rendezvous, std::string key,
           Milliseconds timeout);
    ~Handle();
    Handle(const Handle&) = delete;
    Handle& operator=(const Handle&) = delete;

    /// Makes NCCL calls, `ncclResult_t(ncclComm_t)`, and waits until NCCL has taken them. Throws fail(what).
    template <class Calls>
    void call(const std::string& what, Calls calls) {
        ncclResult_t status;
        {
            const std::lock_guard lock(calls_);  // no abort frees the communicator meanwhile
            if (over_) fail(what);
            status = calls(comm_);
        }
        settle(status, what);
    }
    /// "" while all is well; otherwise why the communicator is over. Any thread; one atomic load.
    std::string over() const;
    /// Ends the communicator's kernels, here and, with `tell`, on the other members, whom the watching thread tells.
    /// Does not wait until they have ended; the destructor does, for as long as is bearable.
    void end(const std::string& why, bool tell);
    [[noreturn]] void fail(const std::string& what) const;

private:
    void settle(ncclResult_t status, const std::string& what);
    void watch(std::stop_token stop);
    void tell_others();
    void start(const ncclUniqueId& id, int ranks, int me);
    void leave();
    using Clock = std::chrono::steady_clock;
    void release(ncclResult_t (*how)(ncclComm_t), Clock::time_point began);
    void await_release();
    std::string reason(ncclResult_t status) const;
    struct Release;

    const int device_;
    Rendezvous& rendezvous_;
    const std::string key_;
    const Milliseconds timeout_;
    ncclComm_t comm_ = nullptr;
    std::atomic<bool> over_{false}, tells_{false};
    std::timed_mutex calls_;
    mutable std::mutex mutex_;  // guards why_
    std::string why_;
    std::shared_ptr<Release> release_;  ///< written once, by whoever ends it; read by the destructor
    std::jthread watch_;
};

}  // namespace orrery::nccl_transport
