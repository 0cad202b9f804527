#pragma once
#include <functional>

#include "orrery/communicator.h"

namespace orrery {

/// A process that has joined a rendezvous: it uses the key-value store, and a thread of its own sends heartbeats.
class ORRERY_API Member : public Rendezvous {
public:
    /// Sets a function that returns this rank's position, a text of up to 64 KiB; the heartbeat thread sends it four
    /// times a second. An empty function ends that. "late ..." makes the service explain the wait to all ranks.
    virtual void tell_position(std::function<std::string()> position) = 0;
    /// Leaves the rendezvous because this rank is done: its disconnecting then does not count as a loss.
    virtual void leave() = 0;
    /// Reports that this process gives up because of `why`, with its rank and pid. On all members lost() becomes "rank
    /// 1 (pid 42 on host n2) failed: why".
    virtual void fail(const Loss& why) = 0;
    /// For launchers: reports how a rank of this host ended. Ignored when `how` names another process than the rank's.
    virtual void gone(const Loss& how) = 0;
    virtual Loss loss() const = 0;        ///< the loss that lost() describes as text
    virtual std::string run() const = 0;  ///< id of this start of the job, JobToken::run of the service
};

/// The service of a rendezvous. Its destructor keeps answering members that have not left, for ServeOptions::linger.
class ORRERY_API RendezvousService {
public:
    virtual ~RendezvousService();
    virtual int port() const = 0;
    /// Makes lost() of all members, including those that join later, return `why`, unless something was lost before.
    virtual void fail(const Loss& why) = 0;
    virtual bool joined(int64_t rank) const = 0;
    /// Reports how a rank ended, as Member::gone does; returns false when that process had not joined.
    virtual bool gone(const Loss& how) = 0;
    virtual Loss loss() const = 0;
};

struct ServeOptions {
    std::string host = "127.0.0.1";
    int port = 0;                     ///< port to listen at; 0: any free port
    int64_t world = 1, per_host = 0;  ///< number of ranks, and of ranks per host if equal on all; 0: not known
    int64_t home = -1;                ///< the rank whose process runs the service; -1: a launcher runs it
    JobToken token;
    Loss lost = {};  ///< set if the job is over before it begins: why, for every process that joins
    std::chrono::milliseconds silence{10'000};  ///< a member without a heartbeat for longer is stopped or unreachable
    std::chrono::milliseconds linger{5'000};    ///< how long the destructor answers members that have not left
    struct Standing {
        int64_t rank = 0;
        std::string position, process;
        double silent_s = 0;
    };
    /// Explains why the rank `late` waits, from the last reports of all ranks of the job.
    std::function<Loss(int64_t late, const std::vector<Standing>& all)> explain;
    std::function<std::string(const std::string& position)> seen;  ///< text of a position for messages, "" for none
};

struct JoinOptions {
    std::string host = "127.0.0.1";
    int port = 0;
    int64_t rank = 0;                 ///< rank of this process; -1 - n: the launcher of node n
    int64_t world = 0, per_host = 0;  ///< numbers of ranks as in ServeOptions, which must agree; 0: not known
    JobToken token;
    std::chrono::milliseconds timeout{30'000};  ///< max time to reach and join the service
    std::chrono::milliseconds silence{10'000};  ///< a service that sends nothing for longer counts as lost
    std::function<bool()> give_up = {};         ///< polled while joining: true ends the attempt within a second
    std::string nonce = {};  ///< up to 32 letters that, with the pid, identify the process; "": the pid alone
};

/// A rendezvous implementation, a kind of plugin: rendezvous/NAME.
class ORRERY_API RendezvousBackend {
public:
    virtual ~RendezvousBackend();
    /// Starts a service. Throws Error naming host and port when they are in use or cannot be bound.
    virtual std::unique_ptr<RendezvousService> serve(const ServeOptions& options) = 0;
    /// Joins a service, retrying until it is up. Throws Fault::peer on timeout and Fault::usage on a permanent refusal.
    /// Afterwards the key "address/RANK" has the address by which this rank reaches the service.
    virtual std::unique_ptr<Member> join(const JoinOptions& options) = 0;
};

using LinkTime = std::chrono::nanoseconds;  ///< time of any monotonic clock
/// What Membership and MemberLink need to know of their process, and functions that they call.
struct LinkHost {
    std::string host;
    int64_t pid = 0;
    std::function<std::string(size_t bytes)> random;  ///< returns cryptographically random bytes, for keys
    std::function<std::string(int64_t pid)> process;  ///< state of a process of this host: "is stopped (SIGSTOP)"
};
/// Bytes to send on a connection; with `close` the connection is closed after one attempt to send them.
struct LinkAction {
    uint64_t connection = 0;
    std::string bytes;
    bool close = false;
};

/// The service side of a rendezvous over byte streams, without I/O: handshakes, MACs, keys, lost members and why. The
/// caller reports events on connections, with numbers never reused, and performs the actions returned. Not thread-safe.
class ORRERY_API Membership {
public:
    Membership(const ServeOptions& options, const LinkHost& here);
    ~Membership();
    void opened(uint64_t connection, const std::string& from, LinkTime now);  ///< a peer at address `from` connected
    void received(uint64_t connection, std::string_view bytes, LinkTime now);
    void sent(uint64_t connection, size_t bytes);  ///< so many bytes of the connection's actions were sent
    void closed(uint64_t connection, LinkTime now);
    void fail(const Loss& why);  ///< reports why the job fails, as RendezvousService::fail
    bool gone(const Loss& how);
    bool joined(int64_t rank) const;
    Loss loss() const;
    void tick(LinkTime now);  ///< checks timeouts; call it when due() is reached
    LinkTime due() const;
    bool accepts(LinkTime now) const;  ///< false: too many unauthenticated connections; accept no more
    void end(LinkTime now);            ///< ends the service; it still answers members until over()
    bool over() const;
    std::vector<LinkAction> actions();  ///< what the caller must do on connections, in order; each is returned once

private:
    class State;
    std::unique_ptr<State> state_;
};

/// The member side of a rendezvous, without I/O.
class ORRERY_API MemberLink {
public:
    MemberLink(const JoinOptions& options, const LinkHost& here);
    ~MemberLink();
    void opened(LinkTime now);  ///< connected to the service; unsent bytes of an earlier connection are dropped
    void received(std::string_view bytes, LinkTime now);  ///< throws Error when the service refuses the join
    void closed();
    void tick(LinkTime now, const std::string& position);  ///< sends `position` as a heartbeat; call it at due()
    LinkTime due() const;
    std::string output();  ///< bytes to send to the service, since the last call
    bool joined() const;
    bool over() const;  ///< this member has left, or the service is lost
    Loss loss() const;  ///< loss(), run(), fail() and gone() are as in Member
    std::string run() const;
    void fail(const Loss& why);
    void gone(const Loss& how);
    std::string service() const;    ///< for messages: "rank 0, which holds the rendezvous at n1:29500,"
    void lose(const Message& why);  ///< reports a loss that the backend found: "does not answer"
    /// Issues a request: set, erase, leave, get, count or absent. Returns a number for answer(), if there is an answer.
    uint64_t request(std::string_view what, std::string_view key, std::string_view value);
    std::optional<std::string> answer(uint64_t number);  ///< returns the answer to a request once, and removes it
    void cancel(uint64_t number);

private:
    class State;
    std::unique_ptr<State> state_;
};

}  // namespace orrery
