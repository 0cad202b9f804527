#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <list>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "base/limits.h"
#include "orrery/p2p.h"
#include "run/control/address.h"
#include "run/control/rendezvous.h"
#include "run/control/rendezvous_strangers.h"
#include "run/control/rendezvous_wire.h"
#include "run/control/standing.h"

namespace orrery {

using Clock = std::chrono::steady_clock;
using wire::Frame;
using wire::Kind;

namespace {

constexpr size_t max_unsent = 64 << 20;
constexpr auto tick = std::chrono::milliseconds(100);

struct Peer {
    wire::Fd socket;
    Clock::time_point heard;
    std::string in, out;
    bool left = false, closed = false;
    int64_t rank = -1, pid = 0;
    std::string host;
    std::string position;  ///< as last told, Position::encode
};

/// What a silent member does, when it is of this host and tells.
std::string state_of(const Peer& peer) {
    return peer.host == host_name() ? "its process " + process_state(peer.pid) : "stopped or unreachable";
}

}  // namespace

class RendezvousServer::Loop {
public:
    explicit Loop(const Options& options)
        : options_(options), strangers_(options.host, options.port), wake_(eventfd(0, EFD_CLOEXEC)) {
        constexpr int64_t others = 32;  // of the process it runs in
        need_descriptors(options.world + static_cast<int64_t>(wire::Strangers::most) + others,
                         fmt::format("the rendezvous of {} ranks", options.world));
        port = strangers_.port();
        lost_ = options.lost;
        thread_ = std::thread([this] { run(); });
    }

    ~Loop() {
        stop_ = true;
        wake();
        thread_.join();
    }

    std::string lost() const {
        const std::lock_guard lock(mutex_);
        return lost_;
    }

    void fail(const std::string& why) {
        {
            const std::lock_guard lock(mutex_);
            told_ = why;
        }
        wake();
    }

    bool joined(int64_t rank) const {
        const std::lock_guard lock(mutex_);
        return joined_.count(rank) > 0;
    }

    bool gone(int64_t rank, const std::string& how) {
        const bool known = joined(rank);
        fail(gone_text(rank, how, known));
        return known;
    }

    int port = 0;

private:
    static std::string gone_text(int64_t rank, const std::string& how, bool joined) {
        return fmt::format("rank {} {}{}", rank, how, joined ? "" : " before it joined");
    }

    void wake() {
        const uint64_t one = 1;
        [[maybe_unused]] const auto written = ::write(wake_.get(), &one, sizeof one);
    }

    void run() {
        for (;;) {
            const bool last = stop_;
            round(last ? std::chrono::milliseconds(0) : tick);
            if (last) break;
        }
        // Who ends first must not fail the others: they are answered until they leave, unless the job is lost anyway.
        const auto patience = Clock::now() + options_.linger;
        while (Clock::now() < patience && lost().empty() && std::any_of(peers_.begin(), peers_.end(), here))
            round(tick / 10);
        // An orderly end: members that are still here learn that the store is gone, not that a rank died.
        for (Peer& peer : peers_) push(peer, {Kind::leave, 0, {}, {}});
        const auto until = Clock::now() + std::chrono::seconds(1);
        while (Clock::now() < until && std::any_of(peers_.begin(), peers_.end(), unsent)) round(tick / 10);
    }

    static bool unsent(const Peer& peer) { return !peer.closed && !peer.out.empty(); }
    static bool here(const Peer& peer) { return !peer.left && !peer.closed; }

    void round(std::chrono::milliseconds limit) {
        std::vector<pollfd> fds{{wake_.get(), POLLIN, 0}};
        std::vector<Peer*> polled;
        for (Peer& peer : peers_) {
            fds.push_back({peer.socket.get(), static_cast<short>(POLLIN | (peer.out.empty() ? 0 : POLLOUT)), 0});
            polled.push_back(&peer);
        }
        const size_t strangers = fds.size();
        strangers_.add_to(fds);
        ::poll(fds.data(), fds.size(), static_cast<int>(strangers_.until_due(limit).count()));
        uint64_t woken = 0;
        if (fds[0].revents && ::read(wake_.get(), &woken, sizeof woken) < 0) return;
        for (size_t i = 0; i < polled.size(); ++i) {
            if (fds[i + 1].revents & (POLLIN | POLLHUP | POLLERR)) receive(*polled[i]);
        }
        hear_launcher();
        for (wire::Candidate& candidate : strangers_.serve(&fds[strangers])) greet(candidate);
        look_for_silence();
        for (Peer& peer : peers_) flush(peer);
        peers_.remove_if([](const Peer& peer) { return peer.closed; });
    }

    void hear_launcher() {
        std::string why;
        {
            const std::lock_guard lock(mutex_);
            why.swap(told_);
        }
        if (!why.empty()) tell_all(why);
    }

    void receive(Peer& peer) {
        char buffer[1 << 16];
        while (!peer.closed) {
            const ssize_t n = ::recv(peer.socket.get(), buffer, sizeof buffer, 0);
            if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
            if (n < 0 && errno == EINTR) continue;
            if (n <= 0) return drop(peer, "died");
            peer.in.append(buffer, static_cast<size_t>(n));
            peer.heard = Clock::now();
            try {
                while (auto frame = wire::decode(peer.in)) answer(peer, *frame);
            } catch (const Error& error) {
                return drop(peer, fmt::format("made a protocol error ({})", error.what()));
            }
        }
    }

    wire::Status judge(const wire::Candidate& candidate) const {
        const wire::Hello& hello = candidate.hello;
        const auto other = [](int64_t said, int64_t ours) { return said != 0 && ours != 0 && said != ours; };
        const auto taken = [&](const Peer& peer) { return here(peer) && peer.rank == hello.rank; };
        if (std::memcmp(hello.magic, wire::magic, 8) != 0 ||
            !wire::same(hello.proof, wire::prove(options_.token, hello, candidate.nonce)))
            return wire::Status::wrong_token;
        if (hello.generation != options_.token.generation) return wire::Status::old_generation;
        if (hello.rank < 0 || !lost().empty()) return wire::Status::ok;  // to tell why all end, or to hear it
        if (other(hello.world, options_.world) || other(hello.per_host, options_.per_host))
            return wire::Status::other_shape;
        if (hello.rank >= options_.world) return wire::Status::unknown_rank;
        return std::any_of(peers_.begin(), peers_.end(), taken) ? wire::Status::rank_taken : wire::Status::ok;
    }

    /// A stranger without the token is closed without a word more than the status.
    void greet(wire::Candidate& candidate) {
        const wire::Hello& hello = candidate.hello;
        wire::Welcome welcome{};
        std::memcpy(welcome.magic, wire::magic, 8);
        welcome.status = judge(candidate);
        welcome.home = options_.home;
        if (welcome.status != wire::Status::wrong_token) {
            welcome.world = options_.world;
            welcome.per_host = options_.per_host;
            welcome.proof = wire::prove(options_.token, welcome, hello.nonce);
        }
        Peer peer;
        peer.socket = std::move(candidate.socket);
        peer.heard = Clock::now();
        peer.rank = hello.rank;
        peer.pid = hello.pid;
        peer.host.assign(hello.host, strnlen(hello.host, sizeof hello.host));
        peer.out.assign(reinterpret_cast<const char*>(&welcome), sizeof welcome);
        if (welcome.status == wire::Status::wrong_token) refused_.count(candidate.from);
        if (welcome.status != wire::Status::ok) say_once(peer);
        // It has the token, and its host would start others of its shape: the job cannot come together.
        if (welcome.status == wire::Status::other_shape && !complete())
            tell_all(
                fmt::format("{} is of a job of {}, this job has {}\n"
                            "  give every host the same --nodes and [mesh]",
                            who(peer), wire::shape_text(hello.world, hello.per_host),
                            wire::shape_text(options_.world, options_.per_host)));
        if (welcome.status != wire::Status::ok) return;
        if (peer.rank >= 0) {
            const std::lock_guard lock(mutex_);
            joined_.insert(peer.rank);
        }
        if (const std::string text = lost(); !text.empty()) push(peer, {Kind::lost, 0, {}, text});
        peers_.push_back(std::move(peer));
    }

    void answer(Peer& peer, const Frame& frame) {
        switch (frame.kind) {
            case Kind::set: store(frame.key, frame.value); break;
            case Kind::add: {
                std::string& value = values_[frame.key];
                const int64_t sum = (value.empty() ? 0 : std::strtoll(value.c_str(), nullptr, 10)) +
                                    std::strtoll(frame.value.c_str(), nullptr, 10);
                value = std::to_string(sum);
                push(peer, {Kind::value, frame.id, {}, value});
                store(frame.key, value);
                break;
            }
            case Kind::get:
                if (const auto it = values_.find(frame.key); it != values_.end())
                    push(peer, {Kind::value, frame.id, {}, it->second});
                else
                    waiting_.push_back({frame.key, peer.rank, frame.id});
                break;
            case Kind::erase: values_.erase(frame.key); break;
            case Kind::cancel:
                std::erase_if(waiting_, [&](auto& w) { return w.rank == peer.rank && w.id == frame.id; });
                break;
            case Kind::absent: push(peer, {Kind::value, frame.id, {}, absent()}); break;
            case Kind::beat:
                push(peer, {Kind::beat, 0, {}, {}});
                if (!frame.value.empty()) peer.position = frame.value;
                if (frame.key == "late") tell_all(explain_wait(peer.rank, standings()));
                break;
            case Kind::leave: peer.left = true; break;
            case Kind::fail: fail(peer, frame); break;
            default: throw Error("a frame that only the server sends", Fault::peer);
        }
    }

    void store(const std::string& key, const std::string& value) {
        values_[key] = value;
        std::erase_if(waiting_, [&](const Waiting& w) {
            if (w.key != key) return false;
            for (Peer& peer : peers_)
                if (peer.rank == w.rank) push(peer, {Kind::value, w.id, {}, value});
            return true;
        });
    }

    bool complete() const { return static_cast<int64_t>(joined_.size()) >= options_.world; }

    /// "2 of 4 ranks have not joined: 1, 3", and who was refused meanwhile; or "" when all have.
    std::string absent() const {
        if (complete()) return "";
        std::string list;
        int64_t count = 0;
        for (int64_t rank = 0; rank < options_.world; ++rank) {
            if (joined_.count(rank)) continue;
            if (++count <= 16) list += fmt::format("{}{}", list.empty() ? "" : ", ", rank);
        }
        if (count > 16) list += ", ...";
        return fmt::format("{} of {} ranks have not joined: {}{}", count, options_.world, list, refused_.text());
    }

    /// "rank 1 (pid 4242 on host n2)"; a launcher, which is no rank, is its node's.
    static std::string who(const Peer& peer) {
        const std::string name =
            peer.rank < 0 ? fmt::format("the launcher of node {}", -1 - peer.rank) : fmt::format("rank {}", peer.rank);
        return fmt::format("{} (pid {} on host {})", name, peer.pid, peer.host);
    }

    /// A key is the rank of which a launcher tells.
    void fail(Peer& peer, const Frame& frame) {
        if (!frame.key.empty()) {
            const int64_t rank = std::strtoll(frame.key.c_str(), nullptr, 10);
            tell_all(gone_text(rank, fmt::format("on host {} {}", peer.host, frame.value), joined_.count(rank) > 0));
        }
        drop(peer, fmt::format("failed: {}", frame.value));
    }

    void push(Peer& peer, const Frame& frame) {
        if (peer.closed) return;
        peer.out += wire::encode(frame);
        if (peer.out.size() > max_unsent) drop(peer, "does not read its connection");
    }

    /// Of who is refused: that it cannot be told is nobody's loss.
    static void say_once(const Peer& peer) {
        [[maybe_unused]] const auto sent = ::send(peer.socket.get(), peer.out.data(), peer.out.size(), MSG_NOSIGNAL);
    }

    void flush(Peer& peer) {
        while (unsent(peer)) {
            const ssize_t n = ::send(peer.socket.get(), peer.out.data(), peer.out.size(), MSG_NOSIGNAL);
            if (n < 0 && errno == EINTR) continue;
            if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
            if (n <= 0) return drop(peer, "died");
            peer.out.erase(0, static_cast<size_t>(n));
        }
    }

    void look_for_silence() {
        const auto now = Clock::now();
        for (Peer& peer : peers_) {
            if (here(peer) && now - peer.heard > options_.silence) drop(peer, silence_of(peer, now));
        }
    }

    /// Closes a connection; unless its rank had left, everybody else learns why. The first loss is the one that counts.
    void drop(Peer& peer, const std::string& how) {
        if (peer.closed) return;
        peer.closed = true;
        if (!peer.left) tell_all(who(peer) + " " + how);
    }

    void tell_all(const std::string& why) {
        {
            const std::lock_guard lock(mutex_);
            if (!lost_.empty()) return;
            lost_ = why;
        }
        for (Peer& other : peers_) push(other, {Kind::lost, 0, {}, why});
    }

    std::string silence_of(const Peer& peer, Clock::time_point now) const {
        const double seconds = std::chrono::duration<double>(now - peer.heard).count();
        std::string text = fmt::format("is silent for {:.1f} s: {}", seconds, state_of(peer));
        if (const Position last = Position::decode(peer.position); last.of > 0)
            text += fmt::format("; last seen in {}", last.text);
        return text;
    }

    std::vector<Standing> standings() const {
        std::vector<Standing> all;
        for (const Peer& peer : peers_) {
            if (peer.rank < 0 || peer.closed) continue;
            const double silent = std::chrono::duration<double>(Clock::now() - peer.heard).count();
            const std::string state = state_of(peer);
            all.push_back({peer.rank, Position::decode(peer.position), silent, state});
        }
        return all;
    }

    struct Waiting {
        std::string key;
        int64_t rank;
        uint64_t id;
    };

    const Options options_;
    wire::Strangers strangers_;
    wire::Refusals refused_;
    wire::Fd wake_;
    std::atomic<bool> stop_{false};
    std::list<Peer> peers_;
    std::map<std::string, std::string> values_;
    std::vector<Waiting> waiting_;
    std::set<int64_t> joined_;  // written under the mutex by the one thread that also reads it
    mutable std::mutex mutex_;  // guards joined_ and what follows, for other threads
    std::string lost_, told_;
    std::thread thread_;
};

RendezvousServer::RendezvousServer(const Options& options) : loop_(std::make_unique<Loop>(options)) {}
RendezvousServer::~RendezvousServer() = default;

int RendezvousServer::port() const { return loop_->port; }
void RendezvousServer::fail(const std::string& why) { loop_->fail(why); }
bool RendezvousServer::joined(int64_t rank) const { return loop_->joined(rank); }
bool RendezvousServer::gone(int64_t rank, const std::string& how) { return loop_->gone(rank, how); }

}  // namespace orrery
