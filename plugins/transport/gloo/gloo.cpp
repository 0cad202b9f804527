// Processes on any hosts, over TCP. Gloo connects the members and moves the messages. The collectives are p2p.h's,
// because Gloo has neither reduce_scatter nor bf16, and its waits cannot tell which rank is missing.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <fstream>
#include <mutex>
#include <thread>
#include <vector>

#include "mesh.h"
#include "orrery/p2p.h"
#include "orrery/plugin.h"

namespace orrery::gloo_transport {
namespace {

using Milliseconds = std::chrono::milliseconds;

class GlooCommunicator : public P2pCommunicator {
public:
    GlooCommunicator(const Group& group, Connected connected, LoopThread loop, const Rendezvous& rendezvous,
                     Milliseconds timeout, const P2pOptions& options)
        : P2pCommunicator(group, options),
          mesh_(std::move(connected.mesh)),
          places_(std::move(connected.places)),
          loop_(loop),
          rendezvous_(rendezvous),
          timeout_(timeout),
          watch_([this](std::stop_token stop) { watch(stop); }) {}

    ~GlooCommunicator() override {
        watch_.request_stop();
        watch_.join();
        for (Kept& kept : transfers_)
            if (kept.under_way) kept.transfer->cancel();
    }

    bool done(uint64_t ticket) override {
        Transfer* const transfer = find(ticket);
        if (transfer && !transfer->done(timeout_)) return false;
        finish(ticket);
        return true;
    }

    void abort(std::string_view reason) override {
        give_up(rank_text(group().me) + " gave up: " + std::string(reason));
        mesh_->closeConnections();  // so that the others notice at once
    }

protected:
    uint64_t start_send(int peer, const void* data, int64_t bytes, uint64_t channel) override {
        return start(peer, const_cast<void*>(data), bytes, channel, true);
    }
    uint64_t start_receive(int peer, void* data, int64_t bytes, uint64_t channel) override {
        return start(peer, data, bytes, channel, false);
    }

    void finish(uint64_t ticket) override {
        Transfer* const transfer = find(ticket);
        if (!transfer) return;
        std::string how;
        try {
            if (transfer->wait(timeout_)) return forget(ticket);
        } catch (const ::gloo::Exception& error) {
            how = error.what();
        }
        const int peer = transfer->peer();
        const std::string what = transfer->text();
        forget(ticket, false);
        fail(peer, how, what);
    }

private:
    struct Kept {
        std::unique_ptr<Transfer> transfer;
        uint32_t uses = 0;  ///< distinguishes a ticket from later ones of this slot
        bool under_way = false;
    };

    Transfer* find(uint64_t ticket) {
        const std::lock_guard lock(mutex_);
        const Kept* kept = under_way(ticket);
        return kept ? kept->transfer.get() : nullptr;
    }

    Kept* under_way(uint64_t ticket) {
        const auto place = static_cast<uint32_t>(ticket);
        if (ticket == 0 || place >= transfers_.size()) return nullptr;
        Kept& kept = transfers_[place];
        return kept.under_way && kept.uses == ticket >> 32 ? &kept : nullptr;
    }

    /// `whole`: the transfer succeeded, so it can be reused.
    void forget(uint64_t ticket, bool whole = true) {
        const std::lock_guard lock(mutex_);
        Kept* const kept = under_way(ticket);
        if (!kept) return;
        kept->under_way = false;
        if (!whole) kept->transfer = std::make_unique<Transfer>(*mesh_, loop_);
        free_.push_back(static_cast<uint32_t>(ticket));
    }

    /// Adds slots. Rare: only when more transfers are in flight than ever before.
    void make_places() {
        const size_t more = std::max<size_t>(16, transfers_.size());
        free_.reserve(transfers_.size() + more);
        for (size_t i = 0; i < more; ++i) {
            free_.push_back(static_cast<uint32_t>(transfers_.size()));
            transfers_.push_back({std::make_unique<Transfer>(*mesh_, loop_)});
        }
    }

    uint64_t start(int peer, void* data, int64_t bytes, uint64_t channel, bool sends) {
        // A message must not match a receive of another size: Gloo would end the process.
        const uint64_t slot = channel ^ static_cast<uint64_t>(bytes) * 0x9e3779b97f4a7c15ull;
        if (over_) fail(peer, "");
        try {
            const std::lock_guard lock(mutex_);
            if (free_.empty()) make_places();
            const uint32_t place = free_.back();
            Kept& kept = transfers_[place];
            kept.transfer->start(data, bytes, peer, sends, slot);
            free_.pop_back();
            kept.under_way = true;
            if (over_) kept.transfer->cancel();
            return uint64_t{++kept.uses} << 32 | place;
        } catch (const ::gloo::Exception& error) {
            fail(peer, error.what());
        }
    }

    void give_up(const std::string& why) {
        const std::lock_guard lock(mutex_);
        if (why_.empty()) why_ = why;
        over_ = true;
        for (Kept& kept : transfers_)
            if (kept.under_way) kept.transfer->cancel();
    }

    /// Gloo's waits check only their own connection: this thread ends them when a rank of the job is lost.
    void watch(std::stop_token stop) {
        for (Message lost; !stop.stop_requested(); std::this_thread::sleep_for(Milliseconds(20)))
            if (!over_ && !(lost = rendezvous_.lost()).empty()) give_up(lost.shown());
    }

    /// Throws the best reason known: an abort, a lost rank, or Gloo's error of the connection to the peer. `what` says
    /// what it waited for, because no other rank knows where a message is stuck.
    [[noreturn]] void fail(int peer, const std::string& how, const std::string& what = "") {
        // A closed connection is often a dead process: the rendezvous soon reports which one.
        const bool late = how.find("imed out") != std::string::npos;
        for (int i = 0; !late && !over_ && i < 30; ++i) std::this_thread::sleep_for(Milliseconds(10));
        const std::string& place = places_[static_cast<size_t>(peer)];
        std::string why = late ? rank_text(peer) + " timed out: no answer within " + std::to_string(timeout_.count()) +
                                     " ms (raise it by run.timeout_s, or transport.gloo's own)"
                               : rank_text(peer) + ": " + how;
        if (over_) {
            const std::lock_guard lock(mutex_);
            why = why_;
        }
        if (!what.empty()) why += "; over gloo " + what + " " + place;
        throw Error(this->what() + ": " + why, Fault::peer);
    }

    const std::shared_ptr<::gloo::Context> mesh_;
    const std::vector<std::string> places_;  ///< by member
    const LoopThread loop_;
    const Rendezvous& rendezvous_;
    const Milliseconds timeout_;
    std::atomic<bool> over_{false};
    std::mutex mutex_;  // guards the members below; not held while waiting
    std::vector<Kept> transfers_;
    std::vector<uint32_t> free_;  ///< places in transfers_
    std::string why_;
    std::jthread watch_;
};

/// A text that is the same in processes that can reach each other over the loopback interface.
std::string network_id() {
    std::string boot;
    std::ifstream file("/proc/sys/kernel/random/boot_id");
    std::getline(file, boot);
    struct stat network {};
    ::stat("/proc/self/ns/net", &network);
    return boot + "/" + std::to_string(network.st_ino);
}

/// Each segment costs two wake-ups of Gloo's thread: between two ranks of a host an all_reduce of 4 MiB and more is up
/// to twice as fast as with 512 KiB.
constexpr int64_t segment_bytes = 4 << 20;

/// Added to the timeout, so that the ends of a pair that does not connect can report it first.
constexpr auto settled = Milliseconds(3000);

class GlooTransport : public Transport {
public:
    explicit GlooTransport(Config& config)
        : interface_(config.text("interface", "")),
          host_(config.text("host", "")),
          timeout_s_(config.integer("timeout_s", 0)),
          options_(P2pOptions::read(config, {.segment_bytes = segment_bytes})) {
        const std::string ports = config.text("ports", "");  // run.ports, which core has checked
        std::sscanf(ports.c_str(), "%d-%d", &ports_.first, &ports_.last);
        for (const char* key : {"interface", "host"}) config.of_host(key);
        if (!interface_.empty() && !host_.empty())
            throw Error(config.where("host"), "transport.gloo.host and transport.gloo.interface cannot both be set");
    }

    TransportContract contract() const override {
        TransportContract c = options_.contract();
        c.staging = true;
        return c;
    }

    std::unique_ptr<Communicator> make(const Group& group, Rendezvous& rendezvous, std::span<const Memory>,
                                       Milliseconds timeout) override {
        if (timeout_s_ > 0) timeout = std::chrono::seconds(timeout_s_);
        const std::string name = fresh_name(group, rendezvous);
        const auto networks = exchange(group, rendezvous, name + "/network", network_id(), timeout);
        require_ports(group, std::count(networks.begin(), networks.end(), networks[static_cast<size_t>(group.me)]));
        if (!opened_.device) open(group, networks, rendezvous);
        P2pOptions options = options_;
        for (const std::string& network : networks)
            options.hosts.push_back(
                static_cast<int>(std::find(networks.begin(), networks.end(), network) - networks.begin()));
        auto connected = connect(group, rendezvous, opened_.device, name, timeout);
        // A connected member waits until members that cannot connect have reported it.
        exchange(group, rendezvous, name + "/connected", "", timeout + settled);
        auto made =
            std::make_unique<GlooCommunicator>(group, std::move(connected), opened_.loop, rendezvous, timeout, options);
        made->greet("gloo");
        // no member closes before all are up
        options_.require_alike(group, rendezvous, name + "/ready", timeout + settled);
        return made;
    }

private:
    /// The rank's address, or the host name when that is a loopback address, as through a tunnel.
    static std::string reached_at(const Group& group, Rendezvous& rendezvous) {
        const std::string address = own_address(group, rendezvous);
        if (!address.starts_with("127.") && address != "::1") return address;
        return host_name();
    }

    /// Throws Error if run.ports is too small for the `here` members on this host, with one port for the rendezvous.
    void require_ports(const Group& group, int64_t here) const {
        const int64_t needed = here * (group.size() - 1) + 1;
        if (ports_.count() == 0 || ports_.count() >= needed) return;
        throw Error("run.ports = \"" + ports_.text() + "\" has " + std::to_string(ports_.count()) +
                    " ports, but transport gloo needs " + std::to_string(needed) + " of this host to connect " +
                    group.name + ": " + std::to_string(group.size() - 1) + " for each of its " + std::to_string(here) +
                    " members here, and one for the rendezvous\n  give a range of " + std::to_string(needed) +
                    " ports or more");
    }

    void open(const Group& group, const std::vector<std::string>& networks, Rendezvous& rendezvous) {
        std::string host = host_;
        bool elsewhere = false;
        for (const std::string& network : networks) elsewhere |= network != networks[static_cast<size_t>(group.me)];
        if (host.empty() && interface_.empty()) host = elsewhere ? reached_at(group, rendezvous) : "127.0.0.1";
        opened_ = open_device(interface_, host, ports_);
        const std::string opened = opened_.device->str();
        if (elsewhere && (opened.find("addr=[127.") != std::string::npos || opened.find("[::1]") != std::string::npos))
            throw Error("transport gloo: members of " + group.name + " are on other hosts, which cannot reach '" +
                        (host.empty() ? interface_ : host) + "': it is a loopback address here (" + opened +
                        "); /etc/hosts may map a host's own name to 127.0.1.1; set transport.gloo.interface or " +
                        "transport.gloo.host");
    }

    const std::string interface_, host_;
    const int64_t timeout_s_;
    const P2pOptions options_;
    Ports ports_;
    OpenDevice opened_;
};

void add(Registry& registry) {
    registry.add_transport("gloo", [](Config& config) { return std::make_unique<GlooTransport>(config); });
}

}  // namespace
}  // namespace orrery::gloo_transport

ORRERY_FACTS("devices=cpu");
ORRERY_PLUGIN("transport.gloo", "0.1", orrery::gloo_transport::add);
