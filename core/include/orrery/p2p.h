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

/// Collectives from messages between two members, for transports that can only send and receive. Ring all_reduce,
/// all_gather and reduce_scatter, pipelined in segments; block i is added in ring order from member i+1 on, which at
/// two members gives the bits of any order. Two members exchange a small all_reduce whole. Pairwise all_to_all;
/// broadcast by a binomial tree, or along a chain when large. Works inline on the caller's thread; only a send's event
/// is not empty.
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
    void wait(uint64_t ticket) override { finish(ticket); }
    Traffic traffic() const override { return traffic_; }

protected:
    /// Starts to move bytes to or from a member and returns a ticket for finish(). Messages of one pair, direction,
    /// channel and size arrive in order. The memory is in use until finish(). Neither blocks for the peer.
    virtual uint64_t start_send(int peer, const void* data, int64_t bytes, uint64_t channel) = 0;
    virtual uint64_t start_receive(int peer, void* data, int64_t bytes, uint64_t channel) = 0;
    /// Blocks until the transfer is done. Throws Fault::peer naming what() and the peer's rank. A ticket that was
    /// finished before is done.
    virtual void finish(uint64_t ticket) = 0;
    /// "all_reduce #7 of dp/0", for messages.
    std::string what() const;
    std::string rank_text(int member) const;  ///< "rank 3"

private:
    struct Ring;
    class Window;
    class Pieces;
    void begin(const char* op, const Event& after, uint64_t detail);
    uint64_t send_part(int peer, const void* data, int64_t bytes, uint64_t part = 0);
    uint64_t receive_part(int peer, void* data, int64_t bytes, uint64_t part = 0);
    int around(int offset) const;  ///< member `offset` places after this one
    void exchange_whole(const Tensor& in, const Tensor& out, ReduceOp op);
    void ring_reduce(const Ring& ring, const char* in, char* out, bool scatter);
    void ring_gather(const Ring& ring, char* out);

    const Group group_;
    const int64_t segment_bytes_;
    std::vector<char> scratch_;
    const char* op_ = "nothing";
    int64_t sequence_ = 0;
    uint64_t channel_ = 0;
    Traffic traffic_;
};

}  // namespace orrery
