#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "orrery/communicator.h"
#include "run/control/job.h"

namespace orrery {

struct Position;  // run/control/standing.h

/// What makes a process a member of a job. The secret never crosses the wire: both sides prove that they know it with
/// HMAC-SHA256 over fresh nonces, the job's name, the generation and the rank.
struct JobToken {
    std::string secret;       ///< from make_secret(), handed down by the launcher
    std::string job = "job";  ///< name of the run, for messages
    int64_t generation = 0;   ///< grows with each restart: a process of an earlier one is refused
};

/// 32 random bytes in hex.
std::string make_secret();

/// The store behind a TCP rendezvous: one thread, in rank 0's or the launcher's process. Until a peer has proved
/// itself it may send one fixed-size hello, within 1 s, and at most 64 such are open (wire::Strangers); afterwards
/// messages of at most 1 MiB. A member whose connection closes without a leave(), or that is silent for `silence`, is
/// lost, and all others learn it at once.
class RendezvousServer {
public:
    struct Options {
        std::string host = "127.0.0.1";
        int port = 0;          ///< 0: any free port
        int64_t world = 1;     ///< ranks 0 ... world-1 may join
        int64_t per_host = 0;  ///< ranks of each host, where hosts have equally many; 0: it is not known
        int64_t home = -1;     ///< the rank in whose process it runs, -1: a launcher's
        JobToken token;
        std::string lost;  ///< not empty: why the job is over before it begins; whoever joins is told
        std::chrono::milliseconds silence{10'000};  ///< longer without a heartbeat: stopped or unreachable
        std::chrono::milliseconds linger{5'000};    ///< the destructor answers so long those who have not left
    };
    /// Throws Error naming host and port when it is in use or cannot be bound.
    explicit RendezvousServer(const Options& options);
    ~RendezvousServer();
    RendezvousServer(const RendezvousServer&) = delete;

    int port() const;
    /// Everybody's Rendezvous::lost, also of those who are yet to join, becomes `why`, unless something was lost
    /// before.
    void fail(const std::string& why);
    bool joined(int64_t rank) const;
    /// As fail(), of a rank's process: "rank 1 (pid 4242) was killed by signal 9 before it joined", `how` being what
    /// follows the rank. False where it had not joined.
    bool gone(int64_t rank, const std::string& how);

private:
    class Loop;
    std::unique_ptr<Loop> loop_;
};

/// Where `job`'s store is, and whose; `home` is left to the caller.
RendezvousServer::Options options_of(const Job& job, int64_t per_host);
/// The store of a job whose rank 0 serves it.
std::unique_ptr<RendezvousServer> serve(const Job& job);

/// One rank's connection to the store; also its sign of life, kept by a thread of its own.
class TcpRendezvous : public Rendezvous {
public:
    struct Options {
        std::string host = "127.0.0.1";
        int port = 0;
        int64_t rank = 0;  ///< -1 - n: the launcher of node n, which only tells why its ranks do not come
        int64_t world = 0, per_host = 0;  ///< as RendezvousServer's; another one is refused. 0: this one does not know
        JobToken token;
        std::chrono::milliseconds timeout{30'000};  ///< to reach and join the server
        std::chrono::milliseconds silence{10'000};  ///< longer without a word from the server: it is lost
        std::function<bool()> give_up = {};         ///< asked while it tries to join: true ends that within a second
    };
    /// Retries until the server is up. Throws Fault::peer naming host, port and reason on timeout or refusal. Then the
    /// address by which this rank reaches the server is there for all, as key "address/RANK".
    explicit TcpRendezvous(const Options& options);
    /// Without a leave() before it, the others are told that this rank went away.
    ~TcpRendezvous() override;
    TcpRendezvous(const TcpRendezvous&) = delete;

    void set(std::string_view key, std::string_view value) override;
    std::string get(std::string_view key, std::chrono::milliseconds timeout) override;
    int64_t add(std::string_view key, int64_t amount) override;
    std::string lost() const override;
    /// As get, but nullopt on timeout.
    std::optional<std::string> look(std::string_view key, std::chrono::milliseconds timeout);
    /// "3 of 4 ranks have not joined: 0, 1, 3", "all ranks joined", or that the server does not answer; within a
    /// second.
    std::string absent();
    /// Removes the key; nobody may need it any more.
    void erase(std::string_view key);

    /// From now on each heartbeat tells where this rank is, four times a second and from the link's own thread; an
    /// empty function ends that. A wait that is late() becomes everybody's lost(), with who is behind and what it does.
    void tell_position(std::function<Position()> position);
    /// This rank is done: closing the connection is no loss any more.
    void leave();
    /// Tells all others why this rank gives up: their lost() becomes "rank 1 (pid 4242 on host n2) failed: <why>".
    void fail(std::string_view why);
    /// What a launcher tells of a rank of its host: "(pid 4242) was killed by signal 9".
    void gone(int64_t rank, std::string_view how);

private:
    class Link;
    std::unique_ptr<Link> link_;
};

/// How `job`'s rank reaches its store; what else is to be agreed on is left to the caller.
TcpRendezvous::Options place_of(const Job& job);

/// The store for ranks that are threads of one process: all share one object.
class LocalRendezvous : public Rendezvous {
public:
    LocalRendezvous();
    ~LocalRendezvous() override;
    void set(std::string_view key, std::string_view value) override;
    std::string get(std::string_view key, std::chrono::milliseconds timeout) override;
    int64_t add(std::string_view key, int64_t amount) override;
    std::string lost() const override;
    void fail(int64_t rank, std::string_view why);

private:
    struct Store;
    std::unique_ptr<Store> store_;
};

}  // namespace orrery
