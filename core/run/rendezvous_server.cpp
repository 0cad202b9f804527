#include <fcntl.h>
#include <netdb.h>
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
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "orrery/p2p.h"
#include "run/rendezvous.h"
#include "run/rendezvous_wire.h"
#include "run/watch.h"

namespace orrery {

using Clock = std::chrono::steady_clock;
using wire::Frame;
using wire::Kind;

namespace {

constexpr size_t max_strangers = 64;
constexpr size_t max_unsent = 64 << 20;
constexpr auto hello_time = std::chrono::seconds(5);
constexpr auto tick = std::chrono::milliseconds(100);

struct Peer {
    wire::Fd socket;
    Clock::time_point heard;
    wire::Nonce nonce;
    std::string in, out;
    bool joined = false, left = false, closed = false;
    int64_t rank = -1, pid = 0;
    std::string host;
    std::string position;  ///< as last told, Position::encode
};

wire::Fd listen_on(const std::string& host, int port) {
    addrinfo hints{}, *found = nullptr;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_PASSIVE;
    const std::string service = std::to_string(port);
    if (const int rc = getaddrinfo(host.empty() ? nullptr : host.c_str(), service.c_str(), &hints, &found))
        throw Error(fmt::format("rendezvous: cannot resolve host '{}': {}", host, gai_strerror(rc)));
    const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> keep(found, freeaddrinfo);
    wire::Fd fd(::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const int on = 1;
    setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (::bind(fd.get(), found->ai_addr, found->ai_addrlen) == 0 && ::listen(fd.get(), 1024) == 0) return fd;
    const int reason = errno;
    if (reason == EADDRINUSE)
        throw Error(
            fmt::format("rendezvous: port {} of {} is in use by another process; choose another, or port 0 "
                        "for any free one",
                        port, host));
    throw Error(fmt::format("rendezvous: cannot listen on {}:{}: {}", host, port, std::strerror(reason)));
}

/// What a silent member does, when it is of this host and tells.
std::string state_of(const Peer& peer) {
    char host[65] = {};
    gethostname(host, 64);
    return peer.host == host ? "its process " + process_state(peer.pid) : "stopped or unreachable";
}

}  // namespace

class RendezvousServer::Loop {
public:
    explicit Loop(const Options& options)
        : options_(options), listener_(listen_on(options.host, options.port)), wake_(eventfd(0, EFD_CLOEXEC)) {
        sockaddr_storage address{};
        socklen_t size = sizeof address;
        getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &size);
        char service[16] = {};
        getnameinfo(reinterpret_cast<sockaddr*>(&address), size, nullptr, 0, service, sizeof service, NI_NUMERICSERV);
        port = std::stoi(service);
        thread_ = std::thread([this] { run(); });
    }

    ~Loop() {
        stop_ = true;
        const uint64_t one = 1;
        [[maybe_unused]] const auto written = ::write(wake_.get(), &one, sizeof one);
        thread_.join();
    }

    std::string lost() const {
        const std::lock_guard lock(mutex_);
        return lost_;
    }

    int port = 0;

private:
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
        for (Peer& peer : peers_)
            if (peer.joined) push(peer, {Kind::leave, 0, {}, {}});
        const auto until = Clock::now() + std::chrono::seconds(1);
        while (Clock::now() < until && std::any_of(peers_.begin(), peers_.end(), unsent)) round(tick / 10);
    }

    static bool unsent(const Peer& peer) { return !peer.closed && !peer.out.empty(); }
    static bool here(const Peer& peer) { return peer.joined && !peer.left && !peer.closed; }

    void round(std::chrono::milliseconds limit) {
        std::vector<pollfd> fds{{listener_.get(), POLLIN, 0}, {wake_.get(), POLLIN, 0}};
        std::vector<Peer*> polled;
        for (Peer& peer : peers_) {
            fds.push_back({peer.socket.get(), static_cast<short>(POLLIN | (peer.out.empty() ? 0 : POLLOUT)), 0});
            polled.push_back(&peer);
        }
        ::poll(fds.data(), fds.size(), static_cast<int>(limit.count()));
        uint64_t woken = 0;
        if (fds[1].revents && ::read(wake_.get(), &woken, sizeof woken) < 0) return;
        for (size_t i = 0; i < polled.size(); ++i) {
            if (fds[i + 2].revents & (POLLIN | POLLHUP | POLLERR)) receive(*polled[i]);
        }
        if (fds[0].revents) accept_all();
        look_for_silence();
        for (Peer& peer : peers_) flush(peer);
        peers_.remove_if([](const Peer& peer) { return peer.closed; });
    }

    void accept_all() {
        for (;;) {
            const int fd = ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
            if (fd < 0) return;
            const auto strangers = std::count_if(peers_.begin(), peers_.end(), [](auto& p) { return !p.joined; });
            Peer peer;
            peer.socket = wire::Fd(fd);
            if (static_cast<size_t>(strangers) >= max_strangers) continue;
            wire::tune(fd);
            peer.heard = Clock::now();
            wire::fill_random(peer.nonce);
            wire::Challenge challenge{};
            std::memcpy(challenge.magic, wire::magic, 8);
            challenge.nonce = peer.nonce;
            peer.out.assign(reinterpret_cast<const char*>(&challenge), sizeof challenge);
            peers_.push_back(std::move(peer));
        }
    }

    void receive(Peer& peer) {
        char buffer[1 << 16];
        for (;;) {
            const size_t room = peer.joined ? sizeof buffer : sizeof(wire::Hello) - peer.in.size();
            const ssize_t n = ::recv(peer.socket.get(), buffer, room, 0);
            if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
            if (n < 0 && errno == EINTR) continue;
            if (n <= 0) return drop(peer, "died");
            peer.in.append(buffer, static_cast<size_t>(n));
            if (!peer.joined) {
                if (peer.in.size() == sizeof(wire::Hello)) greet(peer);
                if (!peer.joined) return;
                continue;
            }
            peer.heard = Clock::now();
            try {
                while (auto frame = wire::decode(peer.in)) answer(peer, *frame);
            } catch (const Error& error) {
                return drop(peer, fmt::format("sent nonsense ({})", error.what()));
            }
            if (peer.closed) return;
        }
    }

    /// Judges a complete hello. A stranger without the token is closed without a word more than the status.
    void greet(Peer& peer) {
        wire::Hello hello;
        std::memcpy(&hello, peer.in.data(), sizeof hello);
        peer.in.clear();
        wire::Welcome welcome{};
        std::memcpy(welcome.magic, wire::magic, 8);
        welcome.home = options_.home;
        const auto taken = [&](const Peer& other) { return here(other) && other.rank == hello.rank; };
        if (std::memcmp(hello.magic, wire::magic, 8) != 0 ||
            !wire::same(hello.proof, wire::prove(options_.token, hello, peer.nonce)))
            welcome.status = wire::Status::wrong_token;
        else if (hello.generation != options_.token.generation)
            welcome.status = wire::Status::old_generation;
        else if (hello.rank < 0 || hello.rank >= options_.world)
            welcome.status = wire::Status::unknown_rank;
        else if (std::any_of(peers_.begin(), peers_.end(), taken))
            welcome.status = wire::Status::rank_taken;
        if (welcome.status != wire::Status::wrong_token)
            welcome.proof = wire::prove(options_.token, welcome, hello.nonce);
        peer.out.append(reinterpret_cast<const char*>(&welcome), sizeof welcome);
        if (welcome.status != wire::Status::ok) {
            flush(peer);
            peer.closed = true;
            return;
        }
        peer.joined = true;
        peer.heard = Clock::now();
        peer.rank = hello.rank;
        peer.pid = hello.pid;
        peer.host.assign(hello.host, strnlen(hello.host, sizeof hello.host));
        joined_.push_back(peer.rank);
        if (const std::string text = lost(); !text.empty()) push(peer, {Kind::lost, 0, {}, text});
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
            case Kind::fail: drop(peer, fmt::format("failed: {}", frame.value)); break;
            default: throw Error("a frame that only the server sends", Fault::peer);
        }
    }

    void store(const std::string& key, const std::string& value) {
        values_[key] = value;
        std::erase_if(waiting_, [&](const Waiting& w) {
            if (w.key != key) return false;
            for (Peer& peer : peers_)
                if (peer.joined && peer.rank == w.rank) push(peer, {Kind::value, w.id, {}, value});
            return true;
        });
    }

    /// "2 of 4 ranks have not joined: 1, 3", or "" when all have.
    std::string absent() const {
        std::string list;
        int64_t count = 0;
        for (int64_t rank = 0; rank < options_.world; ++rank) {
            if (std::find(joined_.begin(), joined_.end(), rank) != joined_.end()) continue;
            if (++count <= 16) list += fmt::format("{}{}", list.empty() ? "" : ", ", rank);
        }
        if (count > 16) list += ", ...";
        return count ? fmt::format("{} of {} ranks have not joined: {}", count, options_.world, list) : "";
    }

    void push(Peer& peer, const Frame& frame) {
        if (peer.closed) return;
        peer.out += wire::encode(frame);
        if (peer.out.size() > max_unsent) drop(peer, "does not read its connection");
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
            if (peer.closed) continue;
            if (!peer.joined && now - peer.heard > hello_time) peer.closed = true;
            if (peer.joined && !peer.left && now - peer.heard > options_.silence) drop(peer, silence_of(peer, now));
        }
    }

    /// Closes a connection; unless its rank had left, everybody else learns why. The first loss is the one that counts.
    void drop(Peer& peer, const std::string& how) {
        if (peer.closed) return;
        peer.closed = true;
        if (!peer.joined || peer.left) return;
        tell_all(fmt::format("rank {} (pid {} on host {}) {}", peer.rank, peer.pid, peer.host, how));
    }

    void tell_all(const std::string& why) {
        {
            const std::lock_guard lock(mutex_);
            if (!lost_.empty()) return;
            lost_ = why;
        }
        for (Peer& other : peers_)
            if (other.joined) push(other, {Kind::lost, 0, {}, why});
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
            if (!peer.joined || peer.closed) continue;
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
    wire::Fd listener_, wake_;
    std::atomic<bool> stop_{false};
    std::list<Peer> peers_;
    std::map<std::string, std::string> values_;
    std::vector<Waiting> waiting_;
    std::vector<int64_t> joined_;
    mutable std::mutex mutex_;  // guards lost_, which other threads read
    std::string lost_;
    std::thread thread_;
};

RendezvousServer::RendezvousServer(const Options& options) : loop_(std::make_unique<Loop>(options)) {}
RendezvousServer::~RendezvousServer() = default;

std::unique_ptr<RendezvousServer> serve(const Job& job) {
    RendezvousServer::Options options;
    options.host = job.host;
    options.port = job.port;
    options.world = job.ranks;
    options.home = job.rank;
    options.token = {job.token, job.id, job.generation};
    return std::make_unique<RendezvousServer>(options);
}

int RendezvousServer::port() const { return loop_->port; }
std::string RendezvousServer::lost() const { return loop_->lost(); }

}  // namespace orrery
