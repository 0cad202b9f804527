#pragma once
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "run/checkpoint/checkpoint.h"
#include "run/host_side.h"
#include "run/session.h"

namespace orrery {

/// A copy of the params and states of a session's main program, in host memory that is made and touched once. It is made
/// beside the next step: by the thread that calls copy() where the device's memory is the host's, elsewhere by the
/// device's queue of copies.
class Snapshot {
public:
    /// Throws as Device::allocate does. The session must outlive it.
    explicit Snapshot(Session& session);

    /// Whether a processor is spare for what follows the copy.
    bool hidden() const { return spare_; }
    /// Once for each executor that runs from now on: lets it wait before what it writes is copied. `plans`: of its
    /// program, by class.
    void guard(Executor& executor, const std::vector<SnapshotPlan>& plans);
    /// At a step's end, on its thread; the last copy is not in use any more. Lets executors wait until it is made.
    void take();
    /// On another thread, after take(): returns when the copy is made.
    void copy();

    /// As the copy holds them: host memory, in the order of the program.
    std::span<const StateValue> values() const { return values_; }
    int64_t bytes() const { return memory_.bytes(); }
    /// That executors have waited for copies so far, on the host: a device's own queue is not seen here.
    double waited_s() const { return progress_.waited_s(); }
    /// "beside the next step, on a spare processor", for people.
    std::string how() const;

private:
    static constexpr int copies = 1;  ///< the device's queue beside the kernels
    struct Part {
        std::string name;
        const std::byte* from;
        std::byte* to;
        int64_t bytes;
    };
    void lay_out();

    Session& session_;
    const bool spare_, queued_;
    HostMemory memory_;
    std::vector<Part> parts_;   ///< in the order of the SnapshotPlan; what a queue copies by address
    std::vector<Part> pieces_;  ///< of a queue: parts that lie side by side are one
    std::vector<StateValue> values_;
    CopyProgress progress_;
    Event gate_;
};

}  // namespace orrery
