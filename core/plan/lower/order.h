#pragma once
#include <map>
#include <vector>

#include "plan/lower/loop_analysis.h"

namespace orrery::lowering {

/// One op in one micro-batch (-1: once a step), or one joined all-reduce.
struct Step {
    OpId op = none;
    int64_t micro = -1;
    Fragment fragment;
    int bucket = none;  ///< index into Order::buckets; `op` is its first member
    /// Of a collective that is under way for a while: the message; what is left to do when it has come; the message
    /// with that, whose places are its own until `release`.
    enum class Part : uint8_t { whole, begin, end, held, release };
    Part part = Part::whole;
};

/// All-reduces that become one message. Their inputs lie side by side; the roundest sizes come first, in
/// order of production: a multiple of 64 bytes is aligned to 64.
struct Bucket {
    struct Member {
        OpId op = none;
        int64_t offset = 0;  ///< bytes from the bucket's start
        int64_t bytes = 0;
    };
    AxisId axis = none;
    ReduceOp reduce = ReduceOp::sum;
    DType dtype = DType::f32;
    std::vector<Member> members;  ///< in order of their place
    int64_t bytes = 0;
};

struct Order {
    std::vector<Step> steps;
    std::vector<Bucket> buckets;
    std::vector<int> readers;  ///< per instance: how many steps, results and updates read it
    /// Sends: the receive after which the peer surely has the message; none: not before the step ends.
    std::map<int, int> arrived_by;
};

ReduceOp reduce_of(const Op& op);

/// How messages between stages stand in a stream: each where its value is made and read; those of a moment side by
/// side, in one lane; the same as groups, which proceed together.
enum class Messages : uint8_t { apart, together, grouped };

/// What each rank of the pipeline does, in order: ops before the loop, fragments in the schedule's order, ops after it.
/// Collectives of gradients run as soon as the last micro-batch has made their input. A value is sent as soon as it is
/// made, or, not `apart`, when its fragment ends. It is received when the fragment that reads it starts, or earlier, so
/// that receives from one peer come in the order of its sends; `grouped`: between the fragments where the schedule's
/// timeline has come to the send. `ahead`: by AxisId, see RunAhead. Linear but for sorts.
std::vector<Order> order_steps(const std::vector<LoopAnalysis>& shares, const Schedule& schedule, Messages messages,
                               const std::vector<PrefetchDepth>& ahead);

}  // namespace orrery::lowering
