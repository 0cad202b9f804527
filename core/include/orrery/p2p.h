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

/// Part `i` of `count` elements cut in `parts`: as even as possible, the longer blocks first.
struct Part {
    int64_t begin = 0;
    int64_t count = 0;
};
constexpr Part part_of(int64_t count, int parts, int i) {
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
/// Throws Fault::failed, naming op, group and count, unless the tensor's elements split evenly among the members.
ORRERY_API void require_split(const Group& group, std::string_view op, const Tensor& in);
/// Throws Fault::failed unless 0 <= peer < P.
ORRERY_API void require_member(const Group& group, std::string_view op, int peer);

/// Gives `value` to all members and returns everyone's, by member. `what` is unique in the group. Throws Fault::peer
/// on timeout, naming the rank that did not come.
ORRERY_API std::vector<std::string> exchange(const Group& group, Rendezvous& rendezvous, std::string_view what,
                                             std::string_view value, std::chrono::milliseconds timeout);
/// The address by which this rank reaches the rendezvous, from a network that the job's ranks share. Waits for it for
/// up to 1 s; throws Fault::peer where nobody has told it, as among threads.
ORRERY_API std::string own_address(const Group& group, Rendezvous& rendezvous);
/// A name for the next communicator of this group: the same on all members, another at each call.
ORRERY_API std::string fresh_name(const Group& group, Rendezvous& rendezvous);

/// NCCL's contract: what plans for accelerators are made for where no GPU is there.
ORRERY_API TransportContract accelerator_contract();

/// What a process of this host is doing, for messages: "is stopped (SIGSTOP)", "is running", "has ended".
ORRERY_API std::string process_state(int64_t pid);

/// How collectives over messages go, and the keys of a transport's own table that say so.
struct ORRERY_API P2pOptions {
    int64_t segment_bytes = 512 << 10;  ///< segment_kib: pieces in which large messages are pipelined
    /// auto, ring, recursive_doubling, halving_doubling, tree or hierarchical. auto: P2pCommunicator's comment.
    std::string all_reduce = "auto";
    std::string broadcast = "auto";  ///< auto (by size), tree or chain
    std::vector<int> hosts;          ///< by member: equal numbers share a host; empty: all do. Not a key.

    /// `defaults`: of keys that are not there. Throws Error with the key's place for an unknown name.
    static P2pOptions read(Config& config, P2pOptions defaults);
    static P2pOptions read(Config& config) { return read(config, {}); }
    /// Members with other options would wait for each other: throws Fault::peer naming the first whose options differ.
    /// Every member calls it when all are connected; `what` is unique in the group.
    void require_alike(const Group& group, Rendezvous& rendezvous, std::string_view what,
                       std::chrono::milliseconds timeout) const;
    /// The contract of a transport whose collectives are a P2pCommunicator's: sends that meet receives, by tag, a lane
    /// for each peer and direction, the host's and pinned memory, every type but those of 8-bit floats.
    TransportContract contract() const;
};

/// Collectives from messages between two members, for transports that can only send and receive. all_reduce is chosen
/// by size: two members exchange up to 64 KiB whole; more take recursive doubling up to 16 KiB; above that a
/// hierarchical one when equally many, but not one, share each of several hosts; halving and doubling up to 256 KiB
/// when they are 4, 8, 16, ...; else a ring, pipelined in segments, whose block i is added from member i+1 on. At two
/// members all of them give the same bits. Ring all_gather and reduce_scatter, pairwise all_to_all; broadcast by a
/// binomial tree, or along a chain when large. Works inline on the caller's thread; only a send's event is not empty.
/// Allocates only for what is larger than all before.
class ORRERY_API P2pCommunicator : public Communicator {
public:
    P2pCommunicator(Group group, int64_t segment_bytes);
    P2pCommunicator(Group group, P2pOptions options);
    ~P2pCommunicator() override;

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

    /// Sends messages of 64 bytes to 64 KiB to every other member and receives theirs, before any other call, so that a
    /// connection that carries none, or only small ones (a smaller MTU on the way), is found here. Collective. Throws
    /// Fault::peer as finish() does, naming `transport`, both ranks, the size that did not pass, and how many bytes
    /// had. Not counted as traffic.
    void greet(std::string_view transport);

protected:
    /// Starts to move bytes to or from a member and returns a ticket for finish(). Messages of one pair, direction,
    /// channel and size arrive in order. The memory is in use until finish(). Neither blocks for the peer.
    virtual uint64_t start_send(int peer, const void* data, int64_t bytes, uint64_t channel) = 0;
    virtual uint64_t start_receive(int peer, void* data, int64_t bytes, uint64_t channel) = 0;
    /// As start_send, for send(): its end is what the contract says of sends.
    virtual uint64_t start_message(int peer, const void* data, int64_t bytes, uint64_t channel) {
        return start_send(peer, data, bytes, channel);
    }
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
    class Algorithms;  ///< step tables, made once per communicator
    void begin(const char* op, const Event& after, uint64_t detail);
    uint64_t send_part(int peer, const void* data, int64_t bytes, uint64_t part = 0);
    uint64_t receive_part(int peer, void* data, int64_t bytes, uint64_t part = 0);
    int around(int offset) const;  ///< member `offset` places after this one
    void exchange_whole(const Tensor& in, const Tensor& out, ReduceOp op);
    void ring_reduce(const Ring& ring, const char* in, char* out, bool scatter);
    void ring_gather(const Ring& ring, char* out);

    const Group group_;
    const int64_t segment_bytes_;
    const std::unique_ptr<Algorithms> algorithms_;
    std::vector<char> scratch_;
    std::vector<uint64_t> sends_, passed_;  ///< tickets of the collective at hand
    const char* op_ = "nothing";
    int64_t sequence_ = 0;
    uint64_t channel_ = 0;
    Traffic traffic_;
};

}  // namespace orrery
