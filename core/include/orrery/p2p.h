#pragma once
#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/communicator.h"

namespace orrery {

// What every transport needs, and collectives for those that can only send and receive.

/// Block `i` of `count` elements cut in `parts`: as even as possible, the longer blocks first.
struct Block {
    int64_t begin = 0;
    int64_t count = 0;
};
constexpr Block block_of(int64_t count, int parts, int i) {
    const int64_t base = count / parts, longer = count % parts;
    return {i * base + (i < longer ? i : longer), base + (i < longer ? 1 : 0)};
}

/// out[i] = in_0[i] op in_1[i] op ..., in that order, for every out. bf16 and f16 are reduced in f32 and rounded once;
/// integers wrap; max and min give NaN when any operand is. An out may be one of the ins, but not overlap it otherwise.
/// `stream`: write past the cache.
ORRERY_API void reduce(DType dtype, ReduceOp op, std::span<const void* const> ins, std::span<void* const> outs,
                       int64_t count, bool stream = false);

/// Throws Fault::failed, naming op, group, counts and dtypes, unless both tensors have one dtype and
/// in.count() * out_factor == out.count() * in_factor (all_gather: out_factor = P).
ORRERY_API void require_match(const Group& group, std::string_view op, const Tensor& in, const Tensor& out,
                              int64_t in_factor = 1, int64_t out_factor = 1);
/// Throws Fault::failed unless 0 <= peer < P.
ORRERY_API void require_member(const Group& group, std::string_view op, int peer);

/// Gives `value` to all members and returns everyone's, by member. `what` is unique in the group. Throws Fault::peer
/// on timeout, naming the rank that did not come.
ORRERY_API std::vector<std::string> exchange(const Group& group, Rendezvous& rendezvous, std::string_view what,
                                             std::string_view value, std::chrono::milliseconds timeout);
/// A name for the next communicator of this group: the same on all members, another at each call.
ORRERY_API std::string fresh_name(const Group& group, Rendezvous& rendezvous);

/// Collectives from messages between two members: ring all_reduce, all_gather and reduce_scatter (pipelined in
/// segments), pairwise all_to_all, binomial broadcast. A transport implements the three protected calls. Works inline
/// on the caller's thread; every event but that of a send is empty. all_reduce adds block i in ring order from member
/// i+1 on, which at two members is any order's result.
class ORRERY_API P2pCommunicator : public Communicator {
public:
    P2pCommunicator(Group group, int64_t segment_bytes);

    const Group& group() const override { return group_; }
    Event all_reduce(const Tensor& in, const Tensor& out, ReduceOp op, const Event& after) override;
    Event all_gather(const Tensor& in, const Tensor& out, const Event& after) override;
    Event reduce_scatter(const Tensor& in, const Tensor& out, ReduceOp op, const Event& after) override;
    Event all_to_all(const Tensor& in, const Tensor& out, const Event& after) override;
    Event broadcast(const Tensor& tensor, int root, const Event& after) override;
    Event send(const Tensor& tensor, int peer, int64_t tag, const Event& after) override;
    Event receive(const Tensor& tensor, int peer, int64_t tag, const Event& after) override;
    bool done(uint64_t ticket) override;
    void wait(uint64_t ticket) override;
    Traffic traffic() const override { return traffic_; }

protected:
    /// Starts to move bytes to or from a member. Messages of one (pair, direction, channel) arrive in order. The memory
    /// stays the caller's and untouched until finish(ticket). Neither blocks for the peer.
    virtual uint64_t start_send(int peer, const void* data, int64_t bytes, uint64_t channel) = 0;
    virtual uint64_t start_receive(int peer, void* data, int64_t bytes, uint64_t channel) = 0;
    /// Blocks until the transfer is done, once per ticket. Throws Fault::peer naming what() and the peer.
    virtual void finish(uint64_t ticket) = 0;
    /// "all_reduce #7 of dp/0", for messages.
    std::string what() const;

private:
    struct Ring;
    /// Counts a call and names it for messages.
    void begin(std::string_view op, const Event& after, bool collective = true);
    void ring_reduce(Ring& ring, DType dtype, ReduceOp op, const void* in, void* out);
    void ring_gather(Ring& ring, void* out);
    uint64_t send_part(int peer, const void* data, int64_t bytes);

    Group group_;
    int64_t segment_bytes_;
    std::vector<std::byte> scratch_;
    std::string op_;
    int64_t sequence_ = 0;
    Traffic traffic_;
};

}  // namespace orrery
