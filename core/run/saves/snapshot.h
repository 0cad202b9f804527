#pragma once
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "run/checkpoint/checkpoint.h"
#include "run/host_side.h"
#include "run/session.h"

namespace orrery {

/// A copy of the params and states of a session's main program, in host memory that is made and touched once.
class Snapshot {
public:
    /// Throws as Device::allocate does. The session must outlive it.
    explicit Snapshot(Session& session);

    /// Whether the copy is made beside the steps, by copy().
    bool beside() const { return beside_; }
    /// Whether a processor is spare for what follows the copy, too.
    bool hidden() const { return spare_; }
    /// Once for each executor that runs from now on: lets it wait before what it writes is copied. `plans`: of its
    /// program, by class.
    void guard(Executor& executor, const std::vector<SnapshotPlan>& plans);
    /// At a step's end, on its thread; the last copy is not in use any more. Makes the copy or, beside, lets executors
    /// wait for it until copy() has made it.
    void take();
    /// On another thread, after a take() beside.
    void copy();

    /// As the copy holds them: host memory, in the order of the program.
    std::span<const StateValue> values() const { return values_; }
    int64_t bytes() const { return memory_.bytes(); }
    /// That executors have waited for copies so far.
    double waited_s() const { return progress_.waited_s(); }
    /// "at the end of the step, by 2 threads", for people.
    std::string how() const;

private:
    struct Part {
        std::string name;
        const void* from;
        std::byte* to;
        int64_t bytes;
    };
    void copy_in(int64_t begin, int64_t end) const;

    Session& session_;
    const bool spare_, beside_;
    HostMemory memory_;
    std::vector<Part> parts_;  ///< in the order of the SnapshotPlan
    std::vector<StateValue> values_;
    size_t threads_;
    CopyProgress progress_;
};

}  // namespace orrery
