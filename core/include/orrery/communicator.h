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
    bool launchers = false;   ///< the launchers of nodes meet here, node N as rank N; a service for ranks refuses them
};

/// A small key-value store shared by all ranks of a job. It is used to set up connections, never inside a step. It
/// outlives the communicators made with it. Calls may come from several threads.
class ORRERY_API Rendezvous {
public:
    virtual ~Rendezvous();
    virtual void set(std::string_view key, std::string_view value) = 0;
    /// Waits for the key. Throws Fault::peer on timeout, naming the key and the ranks that are missing.
    virtual std::string get(std::string_view key, std::chrono::milliseconds timeout) = 0;
    /// As get, but returns nullopt on timeout. Throws Fault::peer when a rank is lost.
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
    Send send = Send::rendezvous;  ///< complete when received / copied into one of `slots` / at the end of its group
    /// Receives and collectives return at once and run asynchronously (on a GPU's stream); otherwise they block until
    /// they are complete. Sends never block, however many have not been received.
    bool queued = false;
    int slots = 0;                      ///< buffered: max outstanding sends to one peer
    Lanes lanes = Lanes::communicator;  ///< messages of one lane are delivered in order
    /// By order, an unexpected tag is an error; by tag, a receive takes the next message with its tag and skips others.
    Matching matching = Matching::order;
    bool checks_tags = true;  ///< false: messages carry no tag; a receive takes the next one, whatever its size
    /// all_reduce adds in_0 + in_1 + ... for each element / in another order, the same at every call of one size.
    Reduction reduction = Reduction::by_rank;
    int64_t small_bytes = 0;         ///< all_reduces up to this may send S ceil(log2 P) in total, not 2 S (P-1)/P
    bool in_place = true;            ///< input and output of a collective may be the same tensor
    bool deterministic = true;       ///< the same inputs give the same bits in every run
    bool rank_invariant = true;      ///< all_reduce gives every member the same bits
    std::vector<MemoryKind> memory;  ///< usable kinds, the preferred one first
    bool needs_arena = false;        ///< tensors must be in the arenas given to make()
    bool same_host = false;          ///< members must be processes or threads of one host
    std::vector<DType> dtypes;
    bool staging = false;  ///< memory of other devices is copied through pinned buffers of the session
    bool aborts = true;    ///< abort() ends the waits of every member
    /// Members prove to each other that they belong to the job; otherwise any process can send to an open port.
    bool authenticates = false;

    // The loader sets the rest from ORRERY_FACTS; it replaces what contract() says.
    bool same_process = false;         ///< members must be threads of one process
    bool pins_ranks = false;           ///< it busy-waits: benchmarks pin each rank to its own processor
    std::vector<std::string> devices;  ///< devices whose memory it accepts: "cpu", "cuda"

    /// True when messages that are issued back to back proceed and complete together, as in an NCCL group.
    ORRERY_API bool groups_messages() const;
    /// Max sends to one peer that can complete before the peer receives any of them.
    ORRERY_API int sends_done_unmet() const;
    /// One line with all that a plan relies on: "rendezvous sends, a lane per peer and direction, ...".
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

    /// [n] -> [n] on every member. Sends 2 S (P-1)/P.
    virtual Event all_reduce(const Tensor& in, const Tensor& out, ReduceOp op, const Event& after = {}) = 0;
    /// [n] -> [P n], member i's block at i. Sends S (P-1)/P.
    virtual Event all_gather(const Tensor& in, const Tensor& out, const Event& after = {}) = 0;
    /// [P n] -> [n]: block `me` of the reduced tensor. Sends S (P-1)/P.
    virtual Event reduce_scatter(const Tensor& in, const Tensor& out, ReduceOp op, const Event& after = {}) = 0;
    /// [P n] -> [P n]: block j of member i becomes block i of member j. Sends S (P-1)/P.
    virtual Event all_to_all(const Tensor& in, const Tensor& out, const Event& after = {}) = 0;
    /// [n] in place, from member `root`. All members together send S (P-1).
    virtual Event broadcast(const Tensor& tensor, int root, const Event& after = {}) = 0;
    /// Sends S bytes to member `peer`, where a receive with the same tag takes them, in order.
    virtual Event send(const Tensor& tensor, int peer, int64_t tag, const Event& after = {}) = 0;
    virtual Event receive(const Tensor& tensor, int peer, int64_t tag, const Event& after = {}) = 0;
    /// Sends and receives between begin_group and end_group proceed together (contract: Send::grouped); other
    /// transports ignore both calls. A group that an error left open is dropped by the next begin_group or collective.
    virtual void begin_group() {}
    virtual void end_group() {}
    /// Wraps the event of work that can hang when a member is lost (a captured step with messages of this group):
    /// waiting for the result has the timeout and the errors of this communicator.
    virtual Event guard(const Event& work) { return work; }

    /// Ends all waits of this member, and of the others if contract().aborts, with Fault::peer and this reason.
    virtual void abort(std::string_view reason) = 0;
    virtual Traffic traffic() const = 0;
};

/// Makes communicators. There is one object per rank and backend.
class ORRERY_API Transport {
public:
    virtual ~Transport();
    virtual TransportContract contract() const = 0;
    /// Collective over the group. `arenas` is all memory that later tensors may be in: the same order on every member,
    /// the sizes may differ. Throws Fault::peer on timeout, naming the missing rank.
    virtual std::unique_ptr<Communicator> make(const Group& group, Rendezvous& rendezvous,
                                               std::span<const Memory> arenas, std::chrono::milliseconds timeout) = 0;
};

}  // namespace orrery
