#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <tuple>

#include "orrery/plan.h"
#include "plan/repeat.h"
#include "trace/trace.h"

namespace orrery {

/// Bars for the work of a plan, of a measured step as of a predicted one: lane, name, category, arguments and arrows.
/// The caller says when.
class PlanSlices {
public:
    static constexpr const char* compute_lane = "compute";

    /// The plan must outlive it.
    explicit PlanSlices(const Plan& plan) : plan_(plan) {}

    /// What a rank does at an instruction. Ask once for each message that it takes part in, in the order of issue: the
    /// nth of a channel and tag pairs with the nth of the other side.
    TraceSlice of(int64_t rank, const Issued& issued);
    /// The compute lane waits for `awaited` to be done, which is on another lane.
    TraceSlice wait(int64_t rank, const Issued& who, const Issued& awaited) const;
    /// "dp": the lane of what an axis carries.
    std::string lane_of(const Instruction& instruction) const;

private:
    TraceSlice plain(int64_t rank, const Instruction& instruction) const;

    const Plan& plan_;
    using Message = std::tuple<AxisId, int64_t, int64_t, int64_t>;  ///< axis, sender, receiver, tag
    std::map<Message, int64_t> sent_, received_;                    ///< so far
    std::map<std::pair<Message, int64_t>, int64_t> flows_;
};

/// Bytes of a launch's operands, of a copy, of a message; of a collective S of orrery/communicator.h, the larger
/// tensor.
int64_t bytes_of(const Instruction& instruction);

}  // namespace orrery
