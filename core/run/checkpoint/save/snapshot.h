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

/// A copy of a session's params and states in host memory, made while the next step runs. The device's copy queue makes
/// it if the host cannot read device memory or the device captures steps. Otherwise threads do: the one that calls
/// copy(), a low-priority one that it starts, and the step's threads when they would have to wait for the copy.
class Snapshot {
public:
    /// Throws what Device::allocate throws. The session must outlive the snapshot.
    explicit Snapshot(Session& session);
    ~Snapshot();

    /// Whether the save has a processor of its own, so that it does not slow the steps.
    bool hidden() const { return spare_; }
    /// Whether threads make the copy on the processors that the step uses.
    bool by_turns() const { return !spare_ && !queued_; }
    /// Whether the device makes the copy asynchronously, so that waited_s() misses the time that steps wait for it.
    bool unseen() const { return gate_.owner != nullptr; }
    /// Makes an executor wait before it overwrites values that are not copied yet. Must be called once for each
    /// executor before it runs again. `plans`: the order in which its program's values are copied, by rank class. The
    /// executor must not run after this object is gone.
    void guard(Executor& executor, const std::vector<SnapshotPlan>& plans);
    /// Starts a copy. Called at the end of a step on its thread, when values() of the last copy are not in use. Blocks
    /// only on devices without gates.
    void take();
    /// Blocks until the copy is complete. Called on another thread, after take().
    void copy();

    /// The copied values, in the order of the program.
    std::span<const StateValue> values() const { return values_; }
    int64_t bytes() const { return memory_.bytes(); }
    /// Seconds that executors on the host have waited for all copies so far.
    double waited_s() const { return progress_.waited_s(); }
    /// Processor seconds of the low-priority thread in the last copy.
    double copied_s() const { return copied_s_; }
    /// How the copy is made, for messages: "beside the next step, on a spare processor".
    std::string how() const;

private:
    struct Part {
        std::string name;
        const std::byte* from;
        std::byte* to;
        int64_t bytes;
        int64_t stretches_before = 0;  ///< if threads copy: number of stretches (see Stretch) up to the value's end
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
    std::vector<Part> parts_;         ///< one per value; if threads copy, in the order of the SnapshotPlan
    std::vector<Stretch> stretches_;  ///< contiguous ranges, each copied by one call
    std::vector<StateValue> values_;
    std::atomic<int64_t> next_{0};  ///< number of the first stretch that no thread has begun
    std::mutex order_;
    std::vector<char> copied_;  ///< whether each stretch is copied; guarded by order_
    size_t all_before_ = 0;     ///< number of leading stretches that are all copied; guarded by order_
    CopyProgress progress_;
    double copied_s_ = 0;
    Event gate_;
};

}  // namespace orrery
