#pragma once
#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/communicator.h"

namespace orrery {

// Building blocks for all transports, and collectives for transports that can only send and receive.

/// Part `i` of `count` elements divided into `parts`: as even as possible, the longer parts first.
struct Part {
    int64_t begin = 0;
    int64_t count = 0;
};
constexpr Part part_of(int64_t count, int parts, int i) {
    const int64_t base = count / parts, longer = count % parts;
    return {i * base + (i < longer ? i : longer), base + (i < longer ? 1 : 0)};
}

/// Computes out[i] = in_0[i] op in_1[i] op ..., in that order, for every out. bf16 and f16 are reduced in f32 and
/// rounded once; integers wrap; max and min give NaN when any operand is NaN. An out may be one of the ins but must not
/// overlap it otherwise. `stream`: use non-temporal stores, which bypass the cache.
ORRERY_API void reduce(DType dtype, ReduceOp op, std::span<const void* const> ins, std::span<void* const> outs,
                       int64_t count, bool stream = false);

/// Throws Fault::failed, naming op, group, counts and dtypes, unless both tensors have one dtype and
/// in.count() * out_factor == out.count() * in_factor (all_gather: out_factor = P).
ORRERY_API void require_match(const Group& group, std::string_view op, const Tensor& in, const Tensor& out,
                              int64_t in_factor = 1, int64_t out_factor = 1);
/// Throws Fault::failed, naming op, group and count, unless the tensor's elements split evenly among the members.
ORRERY_API void require_split(const Group& group, std::string_view op, const Tensor& in);
/// Throws Fault::failed unless 0 <= `peer` < number of members.
ORRERY_API void require_member(const Group& group, std::string_view op, int peer);

/// Sends `value` to all members and returns the values of all, by member. `what` is a name unique in the group. Throws
/// Fault::peer on timeout, naming the rank that is missing.
ORRERY_API std::vector<std::string> exchange(const Group& group, Rendezvous& rendezvous, std::string_view what,
                                             std::string_view value, std::chrono::milliseconds timeout);
/// Returns the address by which this rank reaches the rendezvous, in a network that the job's ranks share. Waits up to
/// 1 s for it. Throws Fault::peer when no address was set, as among threads.
ORRERY_API std::string own_address(const Group& group, Rendezvous& rendezvous);
/// Returns a name for the next communicator of this group: the same on all members, different at each call.
ORRERY_API std::string fresh_name(const Group& group, Rendezvous& rendezvous);

/// NCCL's contract, with which plans for GPUs are compiled on hosts without a GPU.
ORRERY_API TransportContract accelerator_contract();

/// The state of a process of this host, for messages: "is stopped (SIGSTOP)", "is running", "has ended".
ORRERY_API std::string process_state(int64_t pid);

/// Options of collectives of P2pCommunicator, set by keys of a transport's configuration table.
struct ORRERY_API P2pOptions {
    int64_t segment_bytes = 512 << 10;  ///< bytes of the segments in which large messages are pipelined (segment_kib)
    /// all_reduce: auto (see P2pCommunicator), ring, recursive_doubling, halving_doubling, tree or hierarchical.
    std::string all_reduce = "auto";
    std::string broadcast = "auto";  ///< algorithm of broadcast: auto (by size), tree or chain
    std::vector<int> hosts;          ///< host number by member; empty: all share a host. Not a configuration key

    /// Reads the options; `defaults` has the values of absent keys. Throws Error at the key for an unknown algorithm.
    static P2pOptions read(Config& config, P2pOptions defaults);
    static P2pOptions read(Config& config) { return read(config, {}); }
    /// Throws Fault::peer naming the first member with different options, since such members would wait for each other.
    /// Every member calls it when all are connected. `what` is a name unique in the group.
    void require_alike(const Group& group, Rendezvous& rendezvous, std::string_view what,
                       std::chrono::milliseconds timeout) const;
    /// The contract of a transport that uses P2pCommunicator: sends wait for receives, matched by tag, one lane per
    /// peer and direction, host and pinned memory, every type except 8-bit floats.
    TransportContract contract() const;
};

/// Collectives built from messages between two members, for transports that can only send and receive. Algorithms of
/// all_reduce, the first that applies:
///   2 members, up to 64 KiB                       they exchange the whole tensor
///   3 or more members, up to 16 KiB               recursive doubling
///   several hosts, each with the same 2 or more   hierarchical
///   4, 8, 16, ... members, up to 256 KiB          recursive halving and doubling
///   otherwise                                     a ring in segments; block i is summed from member i+1 on
/// With two members all of them give the same bits. all_gather and reduce_scatter use a ring, all_to_all exchanges
/// pairs, broadcast uses a binomial tree, or a chain for large tensors. Collectives run on the calling thread; only a
/// send returns an event that is not empty. Memory is allocated only for sizes larger than all before.
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

    /// Sends messages of 64 bytes to 64 KiB to every other member and receives theirs, before any other call. This
    /// detects connections that carry nothing, or only small messages (a path with a smaller MTU). Collective; not
    /// counted as traffic. Throws Fault::peer as finish() does, naming `transport`, both ranks, the size that did not
    /// arrive, and how many bytes of it had.
    void greet(std::string_view transport);

protected:
    /// Starts a transfer to or from member `peer`; returns a ticket for finish(). Messages with one pair, direction,
    /// channel and size arrive in order. The memory is in use until finish(). Neither call waits for the peer.
    virtual uint64_t start_send(int peer, const void* data, int64_t bytes, uint64_t channel) = 0;
    virtual uint64_t start_receive(int peer, void* data, int64_t bytes, uint64_t channel) = 0;
    /// Starts the transfer of send(), which completes as TransportContract::send says; by default start_send().
    virtual uint64_t start_message(int peer, const void* data, int64_t bytes, uint64_t channel) {
        return start_send(peer, data, bytes, channel);
    }
    /// Blocks until the transfer is complete; returns at once for a ticket that was finished before. Throws Fault::peer
    /// naming what() and the rank of the peer.
    virtual void finish(uint64_t ticket) = 0;
    /// The current collective, for messages: "all_reduce #7 of dp/0".
    std::string what() const;
    std::string rank_text(int member) const;  ///< "rank 3"

private:
    struct Ring;
    class Window;
    class Pieces;
    class Algorithms;  ///< step tables of all_reduce algorithms, made once per communicator
    void begin(const char* op, const Event& after, uint64_t detail);
    uint64_t send_part(int peer, const void* data, int64_t bytes, uint64_t part = 0);
    uint64_t receive_part(int peer, void* data, int64_t bytes, uint64_t part = 0);
    int around(int offset) const;  ///< the member `offset` places after this one, modulo the group size
    void exchange_whole(const Tensor& in, const Tensor& out, ReduceOp op);
    void ring_reduce(const Ring& ring, const char* in, char* out, bool scatter);
    void ring_gather(const Ring& ring, char* out);

    const Group group_;
    const int64_t segment_bytes_;
    const std::unique_ptr<Algorithms> algorithms_;
    std::vector<char> scratch_;
    std::vector<uint64_t> sends_, passed_;  ///< tickets of transfers in the current collective
    const char* op_ = "nothing";
    int64_t sequence_ = 0;
    uint64_t channel_ = 0;
    Traffic traffic_;
};

}  // namespace orrery
