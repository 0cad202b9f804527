#pragma once
#include <functional>

#include "orrery/communicator.h"

namespace orrery {

/// What makes a process a member of a job. The secret never crosses the wire: both sides prove that they know it, and
/// each frame behind that carries a MAC of it.
struct JobToken {
    std::string secret;       ///< handed down by the launcher, or read from a file of mode 0600
    std::string job = "job";  ///< name of the run, for messages
    int64_t generation = 0;   ///< grows with each restart: a process of an earlier one is refused
};

/// One process' place in a rendezvous: beside the store of keys its sign of life, kept by a thread of its own.
class ORRERY_API Member : public Rendezvous {
public:
    /// From now on each heartbeat tells what `position` returns, up to 64 KiB, four times a second and from the
    /// member's own thread; empty ends that. One that begins with "late " makes the service explain the wait to all.
    virtual void tell_position(std::function<std::string()> position) = 0;
    /// This rank is done: that it goes away is no loss any more.
    virtual void leave() = 0;
    /// Tells all others why this rank gives up: their lost() becomes "rank 1 (pid 4242 on host n2) failed: <why>".
    virtual void fail(std::string_view why) = 0;
    /// What a launcher tells of a rank of its host: "(pid 4242) was killed by signal 9".
    virtual void gone(int64_t rank, std::string_view how) = 0;
};

/// What the ranks of a job meet in. The destructor answers those who have not left for some seconds more.
class ORRERY_API RendezvousService {
public:
    virtual ~RendezvousService();
    virtual int port() const = 0;
    /// Everybody's lost(), also of those who are yet to join, becomes `why`, unless something was lost before.
    virtual void fail(const std::string& why) = 0;
    virtual bool joined(int64_t rank) const = 0;
    /// As fail(), of a rank's process; `how` follows the rank. False where it had not joined.
    virtual bool gone(int64_t rank, const std::string& how) = 0;
};

struct ServeOptions {
    std::string host = "127.0.0.1";
    int port = 0;                     ///< 0: any free port
    int64_t world = 1, per_host = 0;  ///< ranks that may join, and of each host where all have as many; 0: not known
    int64_t home = -1;                ///< the rank in whose process it runs, -1: a launcher's
    JobToken token;
    std::string lost;  ///< not empty: why the job is over before it begins; whoever joins is told
    std::chrono::milliseconds silence{10'000};  ///< longer without a heartbeat: stopped or unreachable
    std::chrono::milliseconds linger{5'000};    ///< the destructor answers so long those who have not left
    /// Why `late` waits, from what all ranks have told last (rank, position, silent seconds, state of its process).
    struct Standing {
        int64_t rank = 0;
        std::string position, process;
        double silent_s = 0;
    };
    std::function<std::string(int64_t late, const std::vector<Standing>& all)> explain;
    std::function<std::string(const std::string& position)> seen;  ///< a position for people, "" for none
};

struct JoinOptions {
    std::string host = "127.0.0.1";
    int port = 0;
    int64_t rank = 0;                 ///< -1 - n: the launcher of node n
    int64_t world = 0, per_host = 0;  ///< as ServeOptions'; another one is refused. 0: this one does not know
    JobToken token;
    std::chrono::milliseconds timeout{30'000};  ///< to reach and join the service
    std::chrono::milliseconds silence{10'000};  ///< longer without a word from it: it is lost
    std::function<bool()> give_up = {};         ///< asked while it tries to join: true ends that within a second
};

/// A way to meet, a kind of plugin: rendezvous/NAME.
class ORRERY_API RendezvousBackend {
public:
    virtual ~RendezvousBackend();
    /// Throws Error naming host and port when they are in use or cannot be bound.
    virtual std::unique_ptr<RendezvousService> serve(const ServeOptions& options) = 0;
    /// Retries until the service is up. Throws Fault::peer naming host, port and reason on timeout or refusal. Then the
    /// address by which this rank reaches the service is there for all, as key "address/RANK".
    virtual std::unique_ptr<Member> join(const JoinOptions& options) = 0;
};

using LinkTime = std::chrono::nanoseconds;  ///< of any monotonic clock
/// What the two below need of the process that drives them.
struct LinkHost {
    std::string host;  ///< this machine's name
    int64_t pid = 0;
    std::function<std::string(size_t bytes)> random;  ///< fit for keys
    std::function<std::string(int64_t pid)> process;  ///< "is stopped (SIGSTOP)", of a process of this machine
};

/// Bytes to send on a connection; with `close` it ends when that was tried once.
struct LinkAction {
    uint64_t connection = 0;
    std::string bytes;
    bool close = false;
};

/// The service's side of a rendezvous over streams of bytes, without I/O: hellos, MACs, keys, who is lost and why. Told
/// what happened, to connections whose numbers never come twice, it says what to do. For one thread at a time.
class ORRERY_API Membership {
public:
    Membership(const ServeOptions& options, const LinkHost& here);
    ~Membership();
    void opened(uint64_t connection, const std::string& from, LinkTime now);  ///< `from`: its numeric address
    void received(uint64_t connection, std::string_view bytes, LinkTime now);
    void sent(uint64_t connection, size_t bytes);    ///< of its actions' bytes
    void closed(uint64_t connection, LinkTime now);  ///< by the other end
    void fail(const std::string& why);               ///< this and the next two: RendezvousService's
    bool gone(int64_t rank, const std::string& how);
    bool joined(int64_t rank) const;
    void tick(LinkTime now);  ///< when due() has come
    LinkTime due() const;
    bool accepts(LinkTime now) const;  ///< false: more connections are to wait in the listener's queue
    void end(LinkTime now);            ///< of the service: it goes on until over()
    bool over() const;
    std::vector<LinkAction> actions();  ///< since the last call, in order

private:
    class State;
    std::unique_ptr<State> state_;
};

/// A member's side, in the same way.
class ORRERY_API MemberLink {
public:
    MemberLink(const JoinOptions& options, const LinkHost& here);
    ~MemberLink();
    void opened(LinkTime now);  ///< a connection to the service; what was unsent on one before is dropped
    void received(std::string_view bytes, LinkTime now);   ///< throws Fault::peer when joining is refused
    void closed();                                         ///< by the service
    void tick(LinkTime now, const std::string& position);  ///< a heartbeat, where due() has come
    LinkTime due() const;
    std::string output();  ///< bytes to send, since the last call
    bool joined() const;
    bool over() const;                  ///< nothing more comes
    std::string lost() const;           ///< "": nothing is
    std::string service() const;        ///< for messages: "rank 0, which holds the rendezvous at n1:29500,"
    void lose(const std::string& why);  ///< what the backend finds: "does not answer"
    /// set, erase, leave, fail, gone; get, count, absent, whose answer has the number that it returns.
    uint64_t request(std::string_view what, std::string_view key, std::string_view value);
    std::optional<std::string> answer(uint64_t number);  ///< takes it
    void cancel(uint64_t number);

private:
    class State;
    std::unique_ptr<State> state_;
};

}  // namespace orrery
