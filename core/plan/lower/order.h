#pragma once
#include <map>
#include <vector>

#include "plan/lower/loop_analysis.h"

namespace orrery::lowering {

/// One op in one micro-batch (-1: once per step), or one joined all-reduce.
struct Step {
    OpId op = none;
    int64_t micro = -1;
    Fragment fragment;
    int bucket = none;  ///< index in Order::buckets; `op` is its first member
    /// A collective that overlaps with other steps is split. begin: the message; end: what is done after it arrives. Or
    /// held: both, but its buffers stay alive until the `release` step.
    enum class Part : uint8_t { whole, begin, end, held, release };
    Part part = Part::whole;
};

/// All-reduces that share one message. Their inputs are adjacent, sorted by the alignment of their size (at most 64
/// bytes), so that each is aligned; then in order of production.
struct Bucket {
    struct Member {
        OpId op = none;
        int64_t offset = 0;  ///< bytes from the start of the bucket
        int64_t bytes = 0;
    };
    AxisId axis = none;
    ReduceOp reduce = ReduceOp::sum;
    DType dtype = DType::f32;
    std::vector<Member> members;  ///< sorted by offset
    int64_t bytes = 0;
};

struct Order {
    std::vector<Step> steps;
    std::vector<Bucket> buckets;
    std::vector<int> readers;  ///< by instance: number of steps, results and updates that read it
    /// By step of a send: the receive after which the peer must have the message; none: not known before the step ends.
    std::map<int, int> arrived_by;
};

ReduceOp reduce_of(const Op& op);

/// Where messages between stages are placed. apart: where their value is made or read. together: those of one moment
/// are adjacent, for a transport with one lane. grouped: as together, in groups that the transport runs concurrently.
enum class Messages : uint8_t { apart, together, grouped };

/// Orders the steps of each pipeline rank: ops before the loop, fragments in the schedule's order, ops after the loop.
/// A collective of gradients follows the last micro-batch that makes its input. A value is sent as soon as it is made,
/// or, if not `apart`, when its fragment ends. It is received at the start of the fragment that reads it, or earlier,
/// so that receives from a peer match the order of its sends; if `grouped`, between two fragments, at the time when the
/// schedule's timeline reaches the send. `ahead`: prefetch depth by AxisId. Linear but for sorting.
std::vector<Order> order_steps(const std::vector<LoopAnalysis>& shares, const Schedule& schedule, Messages messages,
                               const std::vector<PrefetchDepth>& ahead);

}  // namespace orrery::lowering
