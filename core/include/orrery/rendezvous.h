#pragma once
#include <functional>

#include "orrery/communicator.h"

namespace orrery {

/// One process' place in a rendezvous: beside the store of keys its sign of life, kept by a thread of its own.
class ORRERY_API Member : public Rendezvous {
public:
    /// Each heartbeat sends what `position` returns, up to 64 KiB, four times a second, from the member's own thread;
    /// empty ends that. One that begins with "late " makes the service explain the wait to all.
    virtual void tell_position(std::function<std::string()> position) = 0;
    /// This rank is done: that it goes away is no loss any more.
    virtual void leave() = 0;
    /// This process gives up, by `why`, whose rank and process become its own: lost() becomes "rank 1 (pid 42 on host
    /// n2) failed: why".
    virtual void fail(const Loss& why) = 0;
    /// A launcher's word on a rank of its host. Ignored where another process than `how` names is that rank.
    virtual void gone(const Loss& how) = 0;
    virtual Loss loss() const = 0;        ///< lost() as a value
    virtual std::string run() const = 0;  ///< the service's, of JobToken
};

/// What the ranks of a job meet in. The destructor answers those who have not left for some seconds more.
class ORRERY_API RendezvousService {
public:
    virtual ~RendezvousService();
    virtual int port() const = 0;
    /// All members' lost(), also of those who join later, becomes `why`, unless something was lost before.
    virtual void fail(const Loss& why) = 0;
    virtual bool joined(int64_t rank) const = 0;
    /// As Member's. False where that process had not joined.
    virtual bool gone(const Loss& how) = 0;
    virtual Loss loss() const = 0;
};

struct ServeOptions {
    std::string host = "127.0.0.1";
    int port = 0;                     ///< 0: any free port
    int64_t world = 1, per_host = 0;  ///< ranks that may join, and of each host where all have as many; 0: not known
    int64_t home = -1;                ///< the rank in whose process it runs, -1: a launcher's
    JobToken token;
    Loss lost = {};  ///< why the job is over before it begins; whoever joins is told
    std::chrono::milliseconds silence{10'000};  ///< longer without a heartbeat: stopped or unreachable
    std::chrono::milliseconds linger{5'000};    ///< the destructor answers so long those who have not left
    /// Why `late` waits, from what all ranks have told last (rank, position, silent seconds, state of its process).
    struct Standing {
        int64_t rank = 0;
        std::string position, process;
        double silent_s = 0;
    };
    std::function<Loss(int64_t late, const std::vector<Standing>& all)> explain;
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
    std::string nonce = {};  ///< of the process, up to 32 letters: pids come again; "": its pid must do
};

/// A way to meet, a kind of plugin: rendezvous/NAME.
class ORRERY_API RendezvousBackend {
public:
    virtual ~RendezvousBackend();
    /// Throws Error naming host and port when they are in use or cannot be bound.
    virtual std::unique_ptr<RendezvousService> serve(const ServeOptions& options) = 0;
    /// Retries until the service is up. Throws Fault::peer on timeout, Fault::usage on a refusal that lasts. Then the
    /// address by which this rank reaches the service is there, as key "address/RANK".
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
    void fail(const Loss& why);                      ///< this and the next three: RendezvousService's
    bool gone(const Loss& how);
    bool joined(int64_t rank) const;
    Loss loss() const;
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
    void received(std::string_view bytes, LinkTime now);   ///< throws Error when joining is refused
    void closed();                                         ///< by the service
    void tick(LinkTime now, const std::string& position);  ///< a heartbeat, where due() has come
    LinkTime due() const;
    std::string output();  ///< bytes to send, since the last call
    bool joined() const;
    bool over() const;  ///< nothing more comes
    Loss loss() const;  ///< this and the next three: Member's
    std::string run() const;
    void fail(const Loss& why);
    void gone(const Loss& how);
    std::string service() const;        ///< for messages: "rank 0, which holds the rendezvous at n1:29500,"
    void lose(const Message& why);  ///< what the backend finds: "does not answer"
    /// set, erase, leave; get, count, absent, whose answer has the number that it returns.
    uint64_t request(std::string_view what, std::string_view key, std::string_view value);
    std::optional<std::string> answer(uint64_t number);  ///< takes it
    void cancel(uint64_t number);

private:
    class State;
    std::unique_ptr<State> state_;
};

}  // namespace orrery
