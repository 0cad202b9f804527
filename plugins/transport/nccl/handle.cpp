#include "handle.h"

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <memory>
#include <vector>

namespace orrery::nccl_transport {

namespace {

using Milliseconds = std::chrono::milliseconds;
// Limits without a failure. After a failure the launcher gives the ranks 1.5 s (LaunchSpec::grace_ms), then kills them,
// even inside NCCL.
constexpr Milliseconds lock_bound{300};
constexpr Milliseconds release_bound{2500};
constexpr Milliseconds naming_bound{100};
constexpr Milliseconds asking_bound{500};  // more than twice the interval of checks of the rendezvous
// The members' shared counter counts aborts in its lower half and questions in its upper half.
constexpr int64_t question = int64_t{1} << 32;

}  // namespace

/// NCCL's abort or destroy, running on a thread of its own.
struct Handle::Release {
    explicit Release(Clock::time_point began) : began(began) {}
    const Clock::time_point began;
    std::mutex mutex;
    std::condition_variable changed;
    bool done = false;

    /// Waits for it, and returns whether it has ended. NCCL promises no limit: one that takes longer continues alone.
    bool ends() {
        std::unique_lock lock(mutex);
        return changed.wait_until(lock, std::max(began + release_bound, Clock::now() + lock_bound),
                                  [this] { return done; });
    }

    /// All releases of the process, including running ones.
    struct All {
        std::mutex mutex;
        std::vector<std::weak_ptr<Release>> started;
    };
    static All& all() {
        static All& kept = *new All;  // never destroyed, so it outlives static destructors
        return kept;
    }
};

Handle::Handle(int device, const Group& group, const ncclUniqueId& id, Rendezvous& rendezvous, std::string key,
               Milliseconds timeout)
    : device_(device), group_(group), rendezvous_(rendezvous), key_(std::move(key)), timeout_(timeout) {
    require(cudaSetDevice(device_), "choosing the GPU");
    start(id);
    watch_ = std::jthread([this](std::stop_token stop) { watch(stop); });
}

Handle::~Handle() {
    watch_.request_stop();
    if (watch_.joinable()) watch_.join();
    if (comm_ && !over_) leave();
    await_release();
}

/// Ends the communicator without an error. Finalizing waits for queued work and for captured steps that hold NCCL's
/// kernels; when it takes too long, because a member is lost or a step still exists, aborts.
void Handle::leave() {
    const auto began = Clock::now();
    ncclResult_t state = ncclCommFinalize(comm_);
    while (state == ncclInProgress && Clock::now() - began < release_bound - lock_bound) {
        std::this_thread::sleep_for(Milliseconds(1));
        const ncclResult_t asked = ncclCommGetAsyncError(comm_, &state);
        if (asked != ncclSuccess) state = asked;
    }
    release(state == ncclSuccess ? ncclCommDestroy : ncclCommAbort, began);
}

/// Runs on a thread of its own: abort and destroy both wait until the members of this host have released NCCL's threads
/// here, although destroying is documented as local after finalizing.
void Handle::release(ncclResult_t (*how)(ncclComm_t), Clock::time_point began) {
    release_ = std::make_shared<Release>(began);
    {
        Release::All& all = Release::all();
        const std::lock_guard lock(all.mutex);
        if (all.started.empty()) std::atexit(before_exit);
        all.started.push_back(release_);
    }
    std::thread([release = release_, comm = comm_, device = device_, how] {
        cudaSetDevice(device);
        how(comm);  // a failure has no consequence any more
        const std::lock_guard lock(release->mutex);
        release->done = true;
        release->changed.notify_all();
    }).detach();
}

void Handle::await_release() {
    if (release_) release_->ends();
}

/// Waits, for a limited time, for threads that are still inside NCCL: static destructors would crash them.
void Handle::before_exit() {
    Release::All& all = Release::all();
    const std::lock_guard lock(all.mutex);
    for (const std::weak_ptr<Release>& started : all.started) {
        if (const std::shared_ptr<Release> release = started.lock()) release->ends();
    }
}

/// Non-blocking, so that a missing member causes an error instead of a hang.
void Handle::start(const ncclUniqueId& id) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    const auto deadline = Clock::now() + timeout_;
    ncclResult_t state = ncclCommInitRankConfig(&comm_, group_.size(), id, group_.me, &config);
    while (state == ncclInProgress) {
        Message why = rendezvous_.lost();
        if (why.empty() && Clock::now() > deadline)
            why = "timed out: not all ranks started NCCL within " + std::to_string(timeout_.count()) + " ms";
        if (!why.empty()) {
            end(why.shown(), false);
            await_release();
            fail("starting NCCL");
        }
        std::this_thread::sleep_for(Milliseconds(1));
        const ncclResult_t asked = ncclCommGetAsyncError(comm_, &state);
        if (asked != ncclSuccess) state = asked;
    }
    if (state == ncclSuccess) return;
    end(reason(state), false);
    await_release();
    fail("starting NCCL");
}

void Handle::settle(ncclResult_t status, const std::string& what, const std::function<std::string()>& who) {
    const auto deadline = Clock::now() + timeout_;
    while (status == ncclInProgress) {
        if (over_) fail(what);
        if (Clock::now() > deadline) {
            // At the first use of a connection NCCL waits for the other side.
            end("timed out: NCCL did not accept the call within " + std::to_string(timeout_.count()) + " ms; " + who(),
                false);
            fail(what);
        }
        std::this_thread::yield();
        const std::lock_guard lock(calls_);
        if (over_) fail(what);
        const ncclResult_t asked = ncclCommGetAsyncError(comm_, &status);
        if (asked != ncclSuccess) status = asked;
    }
    if (status == ncclSuccess) return;
    end(reason(status), false);
    fail(what);
}

/// NCCL does not know which member was lost, and may notice first: gives the rendezvous a moment to name it.
std::string Handle::reason(ncclResult_t status) const {
    const std::string words = text_of(status);
    if (status != ncclRemoteError) return words;
    const auto deadline = Clock::now() + naming_bound;
    Message who;
    while ((who = rendezvous_.lost()).empty() && Clock::now() < deadline) std::this_thread::sleep_for(Milliseconds(5));
    return who.empty() ? words : who.shown() + " (NCCL: " + words + ")";
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
        tells_ = tell;
        over_ = true;
    }
    if (!comm_) return;
    // A blocking NCCL call holds the lock, and the abort must end it, so a timeout is enough. A later holder of the
    // lock finds that the communicator has ended.
    const std::unique_lock calls(calls_, lock_bound);
    release(ncclCommAbort, Clock::now());
}

/// NCCL does not know which member is late: each member's watching thread answers.
std::string Handle::behind(int64_t collective) {
    const auto deadline = Clock::now() + asking_bound;
    std::string text;
    try {
        const std::string answers = key_ + "/at/" + std::to_string(rendezvous_.add(key_, question) / question) + "/";
        for (int i = 0; i < group_.size(); ++i) {
            if (i == group_.me) continue;
            const std::string rank = "rank " + std::to_string(group_.ranks[static_cast<size_t>(i)]);
            const auto left = std::chrono::duration_cast<Milliseconds>(deadline - Clock::now());
            std::string problem;
            try {
                const std::string at = rendezvous_.get(answers + std::to_string(i), std::max(left, Milliseconds(1)));
                if (std::stoll(at) < collective) problem = " has not reached the call";
            } catch (const Error&) {
                problem = " does not say whether it has reached the call";
            }
            if (!problem.empty()) text += (text.empty() ? "" : ", ") + rank + problem;
        }
    } catch (const Error& error) {
        return error.what();
    }
    return text.empty() ? "all ranks have reached the call" : text;
}

/// Answers the others' questions, and returns why one of them has aborted, "" when none has. Costs a message, five
/// times a second.
std::string Handle::told() {
    try {
        const int64_t count = rendezvous_.add(key_, 0);
        for (; answered_ < count / question; ++answered_)
            rendezvous_.set(key_ + "/at/" + std::to_string(answered_ + 1) + "/" + std::to_string(group_.me),
                            std::to_string(at_));
        return count % question > 0 ? rendezvous_.get(key_ + "/why", Milliseconds(1000)) : "";
    } catch (const Error& error) {
        return error.what();
    }
}

/// Runs on the watching thread: a rendezvous that does not answer would block the thread that ends the communicator.
void Handle::tell_others() {
    try {
        rendezvous_.set(key_ + "/why", over());
        rendezvous_.add(key_, 1);
    } catch (const Error&) {
        // Without the rendezvous the others notice that a member is lost.
    }
}

/// A kernel that waits for a lost member blocks the GPU's queues, and with them the thread that drives them, so a
/// separate thread has to watch.
void Handle::watch(std::stop_token stop) {
    cudaSetDevice(device_);
    int round = 0;
    for (; !stop.stop_requested() && !over_; std::this_thread::sleep_for(Milliseconds(20))) {
        Message why = rendezvous_.lost();
        if (ncclResult_t state = ncclSuccess; why.empty()) {
            {
                const std::unique_lock calls(calls_, Milliseconds(5));
                if (!calls || over_ || ncclCommGetAsyncError(comm_, &state) != ncclSuccess) state = ncclSuccess;
            }
            if (state != ncclSuccess && state != ncclInProgress) why = reason(state);
        }
        if (why.empty() && ++round % 10 == 0) why = told();
        if (!why.empty()) end(why.shown(), false);
    }
    if (over_ && tells_) tell_others();
}

}  // namespace orrery::nccl_transport
