#pragma once
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/config.h"
#include "orrery/device.h"
#include "orrery/layout.h"

namespace orrery {

/// The members of one communicator: the ranks along one axis, or along several joined axes.
struct Group {
    std::string name;  ///< unique in the job, "dp/0"; prefix of its keys in the rendezvous
    std::string axis;  ///< for messages; "rep+dp" for joined axes
    std::vector<int64_t> ranks;
    int me = 0;  ///< index of this rank in `ranks`
    int size() const { return static_cast<int>(ranks.size()); }
};

/// Credentials of one job. The secret is never sent: both sides of a connection prove that they know it, and every
/// later frame carries a MAC made with it.
struct JobToken {
    std::string secret;       ///< from the launcher, or read from a file of mode 0600
    std::string job = "job";  ///< name of the run, for messages
    int64_t generation = 0;   ///< incremented by each restart; processes of an earlier generation are refused
    std::string run = {};     ///< id of this start of the job, 32 hex digits; "" until a service draws one
    bool launchers = false;   ///< true: a rendezvous of the nodes' launchers (node N as rank N), not of ranks
};

/// A small key-value store shared by all ranks of a job. It is used to set up connections, never inside a step. It
/// outlives the communicators made with it. Calls may come from several threads.
class ORRERY_API Rendezvous {
public:
    virtual ~Rendezvous();
    virtual void set(std::string_view key, std::string_view value) = 0;
    /// Waits until a rank sets the key; returns its value. Throws Fault::peer on timeout, naming key and missing ranks.
    virtual std::string get(std::string_view key, std::chrono::milliseconds timeout) = 0;
    /// Waits until a rank sets the key; nullopt on timeout. Throws Fault::peer when a rank is lost.
    virtual std::optional<std::string> look(std::string_view key, std::chrono::milliseconds timeout) = 0;
    /// Removes the key, which no rank may need afterwards.
    virtual void erase(std::string_view key) = 0;
    /// The ranks that have not joined, for messages: "3 of 4 ranks have not joined: 0, 1, 3". Returns within a second.
    virtual std::string absent() { return "all ranks joined"; }
    /// Adds to an integer and returns the new value; a missing key counts as 0.
    virtual int64_t add(std::string_view key, int64_t amount) = 0;
    /// "rank 1 (pid 4242 on host n2) died" once a rank of the job is known to be lost, "" until then. Every wait polls
    /// it; while no rank is lost it costs one atomic load.
    virtual Message lost() const { return {}; }
};

/// What a transport guarantees. The plan checker proves plans with it, and the conformance suite tests it.
struct TransportContract {
    enum class Send : uint8_t { rendezvous, buffered, grouped };
    enum class Lanes : uint8_t { communicator, peer, peer_and_direction };
    enum class Matching : uint8_t { order, tag };
    enum class Reduction : uint8_t { by_rank, by_algorithm };
    Send send = Send::rendezvous;  ///< when a send completes: received / copied into one of `slots` / group ended
    /// True: receives and collectives return at once and run asynchronously (on a GPU's stream), and sends never block.
    /// False: receives and collectives block until they are complete.
    bool queued = false;
    int slots = 0;  ///< for Send::buffered: max number of sends to one peer that it has not received yet
    Lanes lanes = Lanes::communicator;  ///< which messages arrive in the order of their sends
    /// How a receive matches. By order: the next message, which must have the tag. By tag: the next message with it.
    Matching matching = Matching::order;
    bool checks_tags = true;  ///< false: messages carry no tag; a receive takes the next message of the peer
    /// Order in which all_reduce sums: by rank (in_0 + in_1 + ...), or by an algorithm, fixed for each message size.
    Reduction reduction = Reduction::by_rank;
    int64_t small_bytes = 0;     ///< max size S of an all_reduce that may send S ceil(log2 P) bytes, not 2 S (P-1)/P
    bool in_place = true;        ///< input and output of a collective may be the same tensor
    bool deterministic = true;   ///< the same inputs give the same bits in every run
    bool rank_invariant = true;  ///< all_reduce gives every member the same bits
    std::vector<MemoryKind> memory;  ///< kinds of memory that tensors may be in, the preferred one first
    bool needs_arena = false;        ///< tensors must be in the arenas given to Transport::make
    bool same_host = false;          ///< members must be processes or threads of one host
    std::vector<DType> dtypes;       ///< types that it reduces; messages that only move bytes may be of any type
    bool staging = false;  ///< true: tensors of other devices are allowed, sent through pinned buffers of the session
    bool aborts = true;    ///< true: abort() ends the waits of all members; false: of its caller only
    /// True: members prove to each other that they belong to the job. False: any process can send to an open port.
    bool authenticates = false;

    // The loader sets the fields below from the plugin's ORRERY_FACTS, whatever contract() returned in them.
    bool same_process = false;         ///< members must be threads of one process
    bool pins_ranks = false;           ///< the transport busy-waits: benchmarks pin each rank to its own processor
    std::vector<std::string> devices;  ///< devices whose memory it accepts: "cpu", "cuda"

    /// True when sends and receives issued back to back proceed and complete together, as in an NCCL group.
    ORRERY_API bool groups_messages() const;
    /// Max sends to one peer that can complete before the peer receives any of them.
    ORRERY_API int sends_done_unmet() const;
    /// One line with the guarantees that plans rely on: "rendezvous sends, a lane per peer and direction, ...".
    ORRERY_API std::string text() const;
};

/// Messages and bytes that this member has sent since the communicator was made.
struct Traffic {
    int64_t collectives = 0;
    int64_t messages = 0;
    int64_t bytes_sent = 0;
};

/// Communication within one group of P members. S is the size in bytes of the larger tensor. Calls are queued in order,
/// start when the event `after` is done, and return an event; all members must issue the same calls in the same order.
/// Shapes are flat counts; a wrong count or dtype throws Fault::failed before anything is sent. On a timeout or a lost
/// peer the call or its event throws Fault::peer, naming op, sequence number and the missing rank.
class ORRERY_API Communicator : public EventSource {
public:
    virtual const Group& group() const = 0;

    /// Reduces a tensor [n] of S bytes over the P members; each gets the result and sends 2 S (P-1)/P bytes.
    virtual Event all_reduce(const Tensor& in, const Tensor& out, ReduceOp op, const Event& after = {}) = 0;
    /// Concatenates [n] of all P members to [P n] (S bytes) on each, in member order. Each sends S (P-1)/P bytes.
    virtual Event all_gather(const Tensor& in, const Tensor& out, const Event& after = {}) = 0;
    /// Reduces [P n] (S bytes) over the P members; member i gets block i, [n]. Each member sends S (P-1)/P bytes.
    virtual Event reduce_scatter(const Tensor& in, const Tensor& out, ReduceOp op, const Event& after = {}) = 0;
    /// Exchanges blocks of [P n] (S bytes): block j of member i becomes block i of member j. Each sends S (P-1)/P.
    virtual Event all_to_all(const Tensor& in, const Tensor& out, const Event& after = {}) = 0;
    /// Copies a tensor of S bytes from member `root` to all P members, in place. Together they send S (P-1) bytes.
    virtual Event broadcast(const Tensor& tensor, int root, const Event& after = {}) = 0;
    /// Sends a tensor to member `peer`. Messages with one tag are received there in the order of their sends.
    virtual Event send(const Tensor& tensor, int peer, int64_t tag, const Event& after = {}) = 0;
    virtual Event receive(const Tensor& tensor, int peer, int64_t tag, const Event& after = {}) = 0;
    /// Send::grouped: sends and receives between begin_group and end_group proceed together. Other transports ignore
    /// both calls. A group that an error left open is dropped by the next begin_group or collective.
    virtual void begin_group() {}
    virtual void end_group() {}
    /// Returns an event that is done when `work` is, and waits with the timeout and errors of this communicator. Used
    /// for work that can hang when a member is lost, such as a captured step with messages of this group.
    virtual Event guard(const Event& work) { return work; }

    /// Makes all waits of this member throw Fault::peer with `reason`; if contract().aborts, those of all members.
    virtual void abort(std::string_view reason) = 0;
    virtual Traffic traffic() const = 0;
};

/// Makes communicators. There is one object per rank and backend.
class ORRERY_API Transport {
public:
    virtual ~Transport();
    virtual TransportContract contract() const = 0;
    /// Makes the communicator of a group; all members call it. `arenas`: all memory that later tensors may be in, in
    /// the same order on every member; sizes may differ. Throws Fault::peer on timeout, naming the missing rank.
    virtual std::unique_ptr<Communicator> make(const Group& group, Rendezvous& rendezvous,
                                               std::span<const Memory> arenas, std::chrono::milliseconds timeout) = 0;
};

}  // namespace orrery
