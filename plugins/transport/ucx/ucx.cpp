// Processes on any hosts, over whatever UCX finds between them: shared memory, TCP, RDMA. UCX moves tagged messages;
// the collectives are p2p.h's.
#include <netinet/in.h>
#include <sys/socket.h>
#include <ucs/config/global_opts.h>
#include <ucs/debug/debug.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <thread>

#include "orrery/plugin.h"
#include "worker.h"

namespace orrery::ucx {
namespace {

class UcxCommunicator : public P2pCommunicator {
public:
    UcxCommunicator(const Group& group, const Rendezvous& rendezvous, const P2pOptions& options, const Reach& reach,
                    int slots, Milliseconds timeout)
        : P2pCommunicator(group, options), slots_(slots), worker_(this->group(), rendezvous, reach, timeout) {}

    Worker& worker() { return worker_; }

    bool done(uint64_t ticket) override {
        if (!worker_.ended(ticket)) return false;
        finish(ticket);
        return true;
    }

    void abort(std::string_view reason) override {
        worker_.abort(rank_text(group().me) + " gave up: " + std::string(reason));
    }

protected:
    uint64_t start_send(int peer, const void* data, int64_t bytes, uint64_t channel) override {
        // Data sent after an abort could complete another member's collective.
        if (const std::string why = worker_.given_up(); !why.empty()) throw Error(what() + ": " + why, Fault::peer);
        return worker_.send(peer, data, bytes, tag(group().me, bytes, channel), false);
    }
    uint64_t start_message(int peer, const void* data, int64_t bytes, uint64_t channel) override {
        return worker_.send(peer, data, bytes, tag(group().me, bytes, channel), true, slots_);
    }
    uint64_t start_receive(int peer, void* data, int64_t bytes, uint64_t channel) override {
        return worker_.receive(peer, data, bytes, tag(peer, bytes, channel));
    }

    void finish(uint64_t ticket) override {
        const std::string why = worker_.finish(ticket);
        if (!why.empty()) throw Error(what() + ": " + why, Fault::peer);
    }

private:
    /// A worker receives from all members, so sender and size are part of the tag: a message does not match a receive
    /// of another size.
    static uint64_t tag(int from, int64_t bytes, uint64_t channel) {
        const uint64_t x = channel ^ (static_cast<uint64_t>(bytes) << 16 | static_cast<uint64_t>(from));
        return (x ^ x >> 29) * 0x9e3779b97f4a7c15ull;
    }

    const int slots_;
    Worker worker_;
};

class UcxTransport : public Transport {
public:
    explicit UcxTransport(Config& config)
        : options_(P2pOptions::read(config)),
          reach_{config.text("transports", ""), config.text("devices", "")},
          timeout_s_(config.integer("timeout_s", 0)),
          slots_(config.integer("slots", 0)) {
        config.of_host("devices");
        const std::string ports = config.text("ports", "");  // run.ports, which core has checked
        std::sscanf(ports.c_str(), "%d-%d", &first_port_, &last_port_);
        // ucp_config_modify does not reach this setting either.
        if (last_port_ > 0) ::setenv("UCX_TCP_PORT_RANGE", ports.c_str(), 1);
        if (slots_ < 0 || slots_ > 64)
            throw Error(config.where("slots"),
                        "transport.ucx.slots is " + std::to_string(slots_) + "; expected 0 (rendezvous) to 64");
    }

    TransportContract contract() const override {
        TransportContract c = options_.contract();
        if (slots_ > 0) c.send = TransportContract::Send::buffered;
        c.slots = static_cast<int>(slots_);
        c.staging = true;
        return c;
    }

    std::unique_ptr<Communicator> make(const Group& group, Rendezvous& rendezvous, std::span<const Memory>,
                                       Milliseconds timeout) override {
        if (timeout_s_ > 0) timeout = std::chrono::seconds(timeout_s_);
        const std::string name = fresh_name(group, rendezvous);
        // The algorithms depend on which members share a host, which must be known before any connection.
        const auto hosts = exchange(group, rendezvous, name + "/host", Place::here("", "").host, timeout);
        P2pOptions options = options_;
        std::map<std::string, int> number;
        for (const std::string& host : hosts)
            options.hosts.push_back(number.emplace(host, static_cast<int>(number.size())).first->second);
        const bool local = number.size() == 1;
        const std::string reached = reached_at(group, rendezvous);
        const Reach reach = reach_.narrowed(local, [&] {
            if (reached.empty() && !local)
                throw Error("transport ucx: members of " + group.name +
                            " are on other hosts, but the address by which they reach this rank "
                            "is unknown; set transport.ucx.devices");
            return reached;
        });
        if (!local || reach.over_tcp(true))
            require_port(group, std::count(hosts.begin(), hosts.end(), hosts[static_cast<size_t>(group.me)]), timeout);
        auto made =
            std::make_unique<UcxCommunicator>(group, rendezvous, options, reach, static_cast<int>(slots_), timeout);
        const std::string here = Place::here(reached, made->worker().address()).text();
        std::vector<Place> places;
        for (const std::string& text : exchange(group, rendezvous, name + "/ucx", here, timeout))
            places.push_back(Place::parse(text));
        made->worker().connect(std::move(places));
        made->greet("ucx");  // UCX connects at the first message
        // No member closes before all are up; members that cannot connect have reported it by then.
        options_.require_alike(group, rendezvous, name + "/ready", timeout + Milliseconds(3000));
        return made;
    }

private:
    /// Whether a socket can be bound to the port, as UCX binds: without SO_REUSEADDR, so that a connection that ended
    /// less than a minute ago still counts.
    static bool is_free(int port) {
        const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        sockaddr_in any{
            .sin_family = AF_INET, .sin_port = htons(static_cast<uint16_t>(port)), .sin_addr = {}, .sin_zero = {}};
        const bool free = fd >= 0 && ::bind(fd, reinterpret_cast<const sockaddr*>(&any), sizeof any) == 0;
        if (fd >= 0) ::close(fd);
        return free;
    }

    /// Waits for a free port for each of the `here` members on this host: a worker of UCX that finds none tries for
    /// ever.
    void require_port(const Group& group, int64_t here, Milliseconds timeout) const {
        if (last_port_ == 0) return;
        const auto deadline = std::chrono::steady_clock::now() + timeout;
        for (;; std::this_thread::sleep_for(Milliseconds(100))) {
            int64_t free = 0;
            for (int port = first_port_; port <= last_port_ && free < here; ++port) free += is_free(port);
            if (free == here) return;
            if (std::chrono::steady_clock::now() < deadline) continue;
            throw Error("transport ucx: " + group.name + " needs " + std::to_string(here) +
                            " ports of this host, one for each member, but of the " +
                            std::to_string(last_port_ - first_port_ + 1) + " of run.ports = \"" +
                            std::to_string(first_port_) + "-" + std::to_string(last_port_) + "\" " +
                            std::to_string(free) +
                            " are free (one is in use for a minute after its connection has ended)\n  end other "
                            "processes that listen at them, or give a larger range",
                        Fault::failed);
        }
    }

    /// The address by which this rank reaches the rendezvous, which it has published there; "" when it has none, as
    /// among threads.
    static std::string reached_at(const Group& group, Rendezvous& rendezvous) {
        const std::string rank = std::to_string(group.ranks[static_cast<size_t>(group.me)]);
        return rendezvous.look("address/" + rank, Milliseconds(0)).value_or("");
    }

    const P2pOptions options_;
    const Reach reach_;
    const int64_t timeout_s_, slots_;
    int first_port_ = 0, last_port_ = 0;
};

void add(Registry& registry) {
    // UCX would handle crash signals and print errors of lost peers; both are the program's task.
    for (const int signal : {SIGILL, SIGSEGV, SIGBUS, SIGFPE}) ucs_debug_disable_signal(signal);
    // By default UCX connects over TCP inside ucp_ep_create, as long as the system tries, even when a rank is lost.
    // ucp_config_modify does not reach this setting, nor the segment size (README.md).
    [[maybe_unused]] static const int once =
        ::setenv("UCX_TCP_CONN_NB", "y", 0) + ::setenv("UCX_TCP_TX_SEG_SIZE", "64k", 0);
    if (!std::getenv("UCX_LOG_LEVEL")) ucs_global_opts_set_value("LOG_LEVEL", "fatal");
    registry.add_transport("ucx", [](Config& config) { return std::make_unique<UcxTransport>(config); });
}

}  // namespace
}  // namespace orrery::ucx

ORRERY_FACTS("devices=cpu");
ORRERY_PLUGIN("transport.ucx", "0.1", orrery::ucx::add);
