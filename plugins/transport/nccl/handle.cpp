#include "handle.h"

#include <algorithm>
#include <condition_variable>
#include <memory>

namespace orrery::nccl_transport {

namespace {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;
// Together below what a launcher gives the ranks to end after one has failed (4 s), with room for the rest of them.
constexpr Milliseconds lock_bound{300};
constexpr Milliseconds abort_bound{2500};

}  // namespace

/// An abort that is under way on a thread of its own.
struct Handle::Abort {
    const Clock::time_point began = Clock::now();
    std::mutex mutex;
    std::condition_variable changed;
    bool done = false;
};

Handle::Handle(int device, int ranks, int me, const ncclUniqueId& id, Rendezvous& rendezvous, std::string key,
               Milliseconds timeout)
    : device_(device), rendezvous_(rendezvous), key_(std::move(key)), timeout_(timeout) {
    require(cudaSetDevice(device_), "choosing the GPU");
    start(id, ranks, me);
    watch_ = std::jthread([this](std::stop_token stop) { watch(stop); });
}

Handle::~Handle() {
    watch_.request_stop();
    if (watch_.joinable()) watch_.join();
    await_abort();
    if (!comm_ || over_) return;
    // The others may be gone already: destroying waits for nobody, and its own failure changes nothing any more.
    ncclCommDestroy(comm_);
}

/// NCCL's abort waits for captured steps that hold its kernels: they are gone by now. In principle it is bounded; in
/// practice its network threads may not be, and it then goes on alone.
void Handle::await_abort() {
    if (!abort_) return;
    std::unique_lock lock(abort_->mutex);
    const auto until = std::max(abort_->began + abort_bound, Clock::now() + lock_bound);
    abort_->changed.wait_until(lock, until, [&] { return abort_->done; });
}

/// Non-blocking, so that a member that does not come is an error and no hang.
void Handle::start(const ncclUniqueId& id, int ranks, int me) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    const auto deadline = Clock::now() + timeout_;
    ncclResult_t state = ncclCommInitRankConfig(&comm_, ranks, id, me, &config);
    while (state == ncclInProgress) {
        std::string why = rendezvous_.lost();
        if (why.empty() && Clock::now() > deadline)
            why = "not all members started NCCL within " + std::to_string(timeout_.count()) + " ms";
        if (!why.empty()) {
            end(why, false);
            await_abort();
            fail("starting NCCL");
        }
        std::this_thread::sleep_for(Milliseconds(1));
        const ncclResult_t asked = ncclCommGetAsyncError(comm_, &state);
        if (asked != ncclSuccess) state = asked;
    }
    if (state == ncclSuccess) return;
    end(text_of(state), false);
    await_abort();
    fail("starting NCCL");
}

void Handle::settle(ncclResult_t status, const std::string& what) {
    const auto deadline = Clock::now() + timeout_;
    while (status == ncclInProgress) {
        if (over_) fail(what);
        if (Clock::now() > deadline) {
            end("NCCL did not take it within " + std::to_string(timeout_.count()) + " ms", false);
            fail(what);
        }
        std::this_thread::yield();
        const std::lock_guard lock(calls_);
        if (over_) fail(what);
        const ncclResult_t asked = ncclCommGetAsyncError(comm_, &status);
        if (asked != ncclSuccess) status = asked;
    }
    if (status == ncclSuccess) return;
    end(text_of(status), false);
    fail(what);
}

std::string Handle::over() const {
    if (!over_) return {};
    const std::lock_guard lock(mutex_);
    return why_;
}

void Handle::fail(const std::string& what) const { throw Error(what + ": " + over(), Fault::peer); }

void Handle::end(const std::string& why, bool tell) {
    {
        const std::lock_guard lock(mutex_);
        if (over_) return;
        why_ = why;
        over_ = true;
    }
    if (tell) {
        rendezvous_.set(key_ + "/why", why);
        rendezvous_.add(key_, 1);
    }
    if (!comm_) return;
    abort_ = std::make_shared<Abort>();
    {
        // A call that blocks is what the abort must end, so the lock is asked for, not insisted on. Who gets it later
        // finds that all is over.
        const std::unique_lock calls(calls_, lock_bound);
        std::thread([abort = abort_, comm = comm_, device = device_] {
            cudaSetDevice(device);
            ncclCommAbort(comm);
            const std::lock_guard lock(abort->mutex);
            abort->done = true;
            abort->changed.notify_all();
        }).detach();
    }
}

/// A kernel that waits for a lost member keeps the GPU's queues from ending, and with them the thread that drives
/// them: so this thread, and not that one, looks.
void Handle::watch(std::stop_token stop) {
    cudaSetDevice(device_);
    int round = 0;
    for (; !stop.stop_requested() && !over_; std::this_thread::sleep_for(Milliseconds(20))) {
        std::string why = rendezvous_.lost();
        if (ncclResult_t state = ncclSuccess; why.empty()) {
            const std::unique_lock calls(calls_, Milliseconds(5));
            if (calls && !over_ && ncclCommGetAsyncError(comm_, &state) == ncclSuccess && state != ncclSuccess &&
                state != ncclInProgress)
                why = text_of(state);
        }
        // A question to the rendezvous is a message: five a second.
        if (why.empty() && ++round % 10 == 0) {
            try {
                if (rendezvous_.add(key_, 0) > 0) why = rendezvous_.get(key_ + "/why", Milliseconds(1000));
            } catch (const Error& error) {
                why = error.what();
            }
        }
        if (!why.empty()) end(why, false);
    }
}

}  // namespace orrery::nccl_transport
