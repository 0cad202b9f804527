#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <tuple>

#include "orrery/plan.h"
#include "plan/repeat.h"
#include "trace/trace.h"

namespace orrery {

/// Makes the bars of a trace for the instructions of a plan, in a measured or predicted step: lane, name, category,
/// arguments and arrows. The caller sets start and duration.
class PlanSlices {
public:
    static constexpr const char* compute_lane = "compute";

    /// `plan` must outlive this object.
    explicit PlanSlices(const Plan& plan) : plan_(plan) {}

    /// Returns the bar of an instruction of a rank. For messages, call it once for each message of the rank, in the
    /// order of issue: an arrow connects the nth send of a channel and tag with the nth receive.
    TraceSlice of(int64_t rank, const Issued& issued);
    /// Returns the bar on the compute lane while instruction `who` waits for `awaited`, which runs on another lane.
    TraceSlice wait(int64_t rank, const Issued& who, const Issued& awaited) const;
    /// Returns the name of an instruction's lane: "dp" for communication over axis dp, "compute" without communication.
    std::string lane_of(const Instruction& instruction) const;

private:
    TraceSlice plain(int64_t rank, const Instruction& instruction) const;

    const Plan& plan_;
    using Message = std::tuple<AxisId, int64_t, int64_t, int64_t>;  ///< axis, sender, receiver, tag
    std::map<Message, int64_t> sent_, received_;  ///< number of messages so far, by axis, ranks and tag
    std::map<std::pair<Message, int64_t>, int64_t> flows_;
};

/// Returns the bytes of all operands of a kernel, a copy or a message. For a collective, returns the bytes of the
/// larger tensor, S in orrery/communicator.h.
int64_t bytes_of(const Instruction& instruction);

}  // namespace orrery
