#pragma once
#include <atomic>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "run/checkpoint/save/checkpoints.h"
#include "run/host_side.h"
#include "run/session.h"

namespace orrery {

/// A copy of the params and states of a session's main program, in host memory that is made and touched once. It is
/// made beside the next step: where the device's memory is the host's by the thread that calls copy(), or one of low
/// priority that it starts, and by the step's own threads what is left when they must wait for it; elsewhere by the
/// device's queue of copies.
class Snapshot {
public:
    /// Throws as Device::allocate does. The session must outlive it.
    explicit Snapshot(Session& session);
    ~Snapshot();

    /// Whether a processor is spare for what follows the copy.
    bool hidden() const { return spare_; }
    /// Whether threads copy on the processors of the step that it lies beside.
    bool by_turns() const { return !spare_ && !queued_; }
    /// Whether the device makes the copy while the host goes on, so that waited_s() says nothing of it.
    bool unseen() const { return gate_.owner != nullptr; }
    /// Once for each executor that runs from now on: lets it wait before what it writes is copied. `plans`: of its
    /// program, by class. It must not run when this is gone.
    void guard(Executor& executor, const std::vector<SnapshotPlan>& plans);
    /// At a step's end, on its thread; the last copy is not in use any more. Lets executors wait until it is made.
    void take();
    /// On another thread, after take(): returns when the copy is made.
    void copy();

    /// As the copy holds them: host memory, in the order of the program.
    std::span<const StateValue> values() const { return values_; }
    int64_t bytes() const { return memory_.bytes(); }
    /// That executors have waited for copies so far, on the host.
    double waited_s() const { return progress_.waited_s(); }
    /// Processor time of the last copy by the thread that copy() started.
    double copied_s() const { return copied_s_; }
    /// "beside the next step, on a spare processor", for people.
    std::string how() const;

private:
    struct Part {
        std::string name;
        const std::byte* from;
        std::byte* to;
        int64_t bytes;
        int64_t stretches_before = 0;  ///< through its end, of a copy by threads
    };
    struct Stretch {
        const std::byte* from;
        std::byte* to;
        int64_t bytes;
    };
    void cut();
    void help(int64_t stretches);
    void lay_out();
    void copy_until(int64_t end);
    void copy_behind_steps();

    Session& session_;
    const bool spare_, queued_;
    const size_t threads_;
    HostMemory memory_;
    std::vector<Part> parts_;         ///< in the order of the SnapshotPlan; what a queue copies by address
    std::vector<Stretch> stretches_;  ///< what is copied at once
    std::vector<StateValue> values_;
    std::atomic<int64_t> next_{0};  ///< the first stretch that nobody has begun
    std::mutex order_;
    std::vector<char> copied_;  ///< by stretch; guarded by order_, as is:
    size_t all_before_ = 0;     ///< stretches, all of which are copied
    CopyProgress progress_;
    double copied_s_ = 0;
    Event gate_;
};

}  // namespace orrery
