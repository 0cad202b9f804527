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

/// The members of one communicator: ranks along one axis, or several together; `me` is this rank's place among them.
struct Group {
    std::string name;  ///< unique in the job: "dp/0", used as the rendezvous key prefix
    std::string axis;  ///< for messages; "rep+dp" where messages go over both axes
    std::vector<int64_t> ranks;
    int me = 0;
    int size() const { return static_cast<int>(ranks.size()); }
};

/// What makes a process a member of a job. The secret never crosses the wire: both sides prove that they know it, and
/// each frame behind that carries a MAC of it.
struct JobToken {
    std::string secret;       ///< handed down by the launcher, or read from a file of mode 0600
    std::string job = "job";  ///< name of the run, for messages
    int64_t generation = 0;   ///< grows with each restart: a process of an earlier one is refused
    std::string run = {};    ///< id of this start of the job, 32 hex digits; "": a service draws one, a member has none
    bool launchers = false;  ///< where the launchers of nodes meet, node N as rank N; a service of ranks refuses them
};

/// A small key-value store shared by all ranks of a job, for meeting; never inside a step. Outlives the communicators
/// made with it. Callable from several threads.
class ORRERY_API Rendezvous {
public:
    virtual ~Rendezvous();
    virtual void set(std::string_view key, std::string_view value) = 0;
    /// Waits for the key. Throws Fault::peer on timeout, naming the key and who did not come.
    virtual std::string get(std::string_view key, std::chrono::milliseconds timeout) = 0;
    /// As get, but nullopt on timeout. Throws Fault::peer when a rank is lost.
    virtual std::optional<std::string> look(std::string_view key, std::chrono::milliseconds timeout) = 0;
    /// Removes the key; nobody may need it any more.
    virtual void erase(std::string_view key) = 0;
    /// Who has not come, for messages: "3 of 4 ranks have not joined: 0, 1, 3". Within a second.
    virtual std::string absent() { return "all ranks joined"; }
    /// Adds and returns the new value; an absent key counts as 0.
    virtual int64_t add(std::string_view key, int64_t amount) = 0;
    /// "rank 1 (pid 4242 on host n2) died" once a rank of the job is known to be lost, "" until then. Costs one atomic
    /// load while all are well: every wait polls it.
    virtual Message lost() const { return {}; }
};

/// What a transport promises. The checker proves plans with it, the conformance suite tests it.
struct TransportContract {
    enum class Send : uint8_t { rendezvous, buffered, grouped };
    enum class Lanes : uint8_t { communicator, peer, peer_and_direction };
    enum class Matching : uint8_t { order, tag };
    enum class Reduction : uint8_t { by_rank, by_algorithm };
    Send send = Send::rendezvous;  ///< when a send is done: met / copied into one of `slots` / at group end
    /// Receives and collectives return at once and proceed behind the caller (on a GPU's stream). Otherwise they return
    /// when they are done, and hold up all that the calling thread issues later. No send ever does, however many are
    /// unmet.
    bool queued = false;
    int slots = 0;                      ///< buffered: sends that may be outstanding per peer
    Lanes lanes = Lanes::communicator;  ///< what is ordered with what
    /// A receive takes its lane's next message, another tag being an error / the next one of its tag, past others.
    Matching matching = Matching::order;
    bool checks_tags = true;  ///< false: messages carry no tag, and one of another tag or size is taken for the next
    /// all_reduce adds in_0 + in_1 + ... for each element / in another order, the same at every call of one size.
    Reduction reduction = Reduction::by_rank;
    int64_t small_bytes = 0;     ///< an all_reduce up to this may send S ceil(log2 P) instead of 2 S (P-1)/P, in total
    bool in_place = true;        ///< input and output of a collective may be the same tensor
    bool deterministic = true;   ///< same inputs, same bits, on every run
    bool rank_invariant = true;  ///< every member gets the same bits from all_reduce
    std::vector<MemoryKind> memory;  ///< usable kinds, the best first
    bool needs_arena = false;        ///< tensors must lie in the arenas given to make()
    bool same_host = false;          ///< members must be processes (or threads) of one host
    std::vector<DType> dtypes;
    bool staging = false;  ///< memory of other devices goes through pinned host buffers, which the session keeps
    bool aborts = true;    ///< abort() ends waits of every member
    /// Members prove to each other that they belong to the job; otherwise whoever reaches a port of theirs may speak.
    bool authenticates = false;

    // Set by the loader from ORRERY_FACTS, over what contract() says.
    bool same_process = false;         ///< members must be threads of one process
    bool pins_ranks = false;           ///< it busy-waits: benchmarks pin each rank to a processor of its own
    std::vector<std::string> devices;  ///< whose memory it takes: "cpu", "cuda"

    /// Messages issued back to back proceed together and complete together (as in an NCCL group).
    ORRERY_API bool groups_messages() const;
    /// How many sends to one peer may complete before it receives them.
    ORRERY_API int sends_done_unmet() const;
    /// "rendezvous sends, a lane per peer and direction, ...": what a plan relies on, in one line.
    ORRERY_API std::string text() const;
};

/// Bytes and messages that this member has put on the wire since the communicator was made.
struct Traffic {
    int64_t collectives = 0;
    int64_t messages = 0;
    int64_t bytes_sent = 0;
};

/// Communication among one group. P members, S bytes of the larger tensor. Calls are queued in order and return an
/// event; the same calls must come in the same order on every member. `after`: work that must be done first.
/// Shapes are flat counts; a wrong count or dtype throws Fault::failed before anything is sent. A timeout or a dead
/// peer surfaces as Fault::peer from the call or its event, naming op, sequence number and the missing rank.
class ORRERY_API Communicator : public EventSource {
public:
    virtual const Group& group() const = 0;

    /// [n] -> [n] on every member. Sends 2 S (P-1)/P.
    virtual Event all_reduce(const Tensor& in, const Tensor& out, ReduceOp op, const Event& after = {}) = 0;
    /// [n] -> [P n], member i's block at i. Sends S (P-1)/P.
    virtual Event all_gather(const Tensor& in, const Tensor& out, const Event& after = {}) = 0;
    /// [P n] -> [n]: block `me` of the reduction. Sends S (P-1)/P.
    virtual Event reduce_scatter(const Tensor& in, const Tensor& out, ReduceOp op, const Event& after = {}) = 0;
    /// [P n] -> [P n]: block j of member i becomes block i of member j. Sends S (P-1)/P.
    virtual Event all_to_all(const Tensor& in, const Tensor& out, const Event& after = {}) = 0;
    /// [n] in place, from member `root`. All members together send S (P-1).
    virtual Event broadcast(const Tensor& tensor, int root, const Event& after = {}) = 0;
    /// Sends S to member `peer`; pairs with the receive of the same tag, in order.
    virtual Event send(const Tensor& tensor, int peer, int64_t tag, const Event& after = {}) = 0;
    virtual Event receive(const Tensor& tensor, int peer, int64_t tag, const Event& after = {}) = 0;
    /// Sends and receives between begin and end proceed together (contract: grouped). Others ignore the calls. What an
    /// error has left open is dropped by the next begin or collective.
    virtual void begin_group() {}
    virtual void end_group() {}
    /// An event of `work`, which may hang when a member is lost (a captured step with this group's messages): its wait
    /// has this communicator's bound and errors.
    virtual Event guard(const Event& work) { return work; }

    /// Ends every wait of this member, and of the others as far as the contract says, with Fault::peer and this reason.
    virtual void abort(std::string_view reason) = 0;
    virtual Traffic traffic() const = 0;
};

/// Makes communicators. One object per rank and backend.
class ORRERY_API Transport {
public:
    virtual ~Transport();
    virtual TransportContract contract() const = 0;
    /// Collective over the group. `arenas`: all memory that later tensors may lie in, in the same order on every
    /// member, of whatever sizes. Throws Fault::peer on timeout, naming the missing rank.
    virtual std::unique_ptr<Communicator> make(const Group& group, Rendezvous& rendezvous,
                                               std::span<const Memory> arenas, std::chrono::milliseconds timeout) = 0;
};

}  // namespace orrery
