// The transport sundial: messages between processes of one host over Unix sockets, collectives from orrery/p2p.h.
// Replace Link by what moves bytes for you; start_send, start_receive, finish, done and abort are all that is asked.
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

#include "orrery/p2p.h"
#include "orrery/plugin.h"

namespace {

using namespace orrery;
using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;

/// Goes before the bytes of each message.
struct Header {
    uint64_t channel = 0;
    int64_t bytes = 0;    ///< met: none follow, the message with this ticket has reached its receive
    uint64_t ticket = 0;  ///< the sender's
    static constexpr int64_t met = -1;

    bool matches(const Header& other) const { return channel == other.channel && bytes == other.bytes; }
};

/// One message on its way out or in.
struct Transfer {
    Header header;
    char* data = nullptr;
    int64_t moved = 0;  ///< of header and data together
    uint64_t ticket = 0;
    std::vector<char> early;  ///< holds an incoming message that nobody has asked for yet

    bool over() const { return moved == static_cast<int64_t>(sizeof header) + std::max(header.bytes, int64_t{0}); }
};

/// The connection to one member: a stream of messages each way. Nothing here blocks.
class Link {
public:
    explicit Link(int socket = -1) : socket_(socket) {}
    Link(Link&& other) noexcept { *this = std::move(other); }
    Link& operator=(Link&& other) noexcept {
        std::swap(socket_, other.socket_);
        return *this;
    }
    ~Link() {
        if (socket_ >= 0) ::close(socket_);
    }

    int socket() const { return socket_; }
    bool closed() const { return closed_; }
    bool sends() const { return !out_.empty(); }

    void send(Transfer transfer) { out_.push_back(std::move(transfer)); }

    /// True when the message had arrived already.
    bool receive(Transfer transfer) {
        for (auto at = early_.begin(); at != early_.end(); ++at) {
            if (!at->header.matches(transfer.header)) continue;
            std::copy(at->early.begin(), at->early.end(), transfer.data);
            acknowledge(at->header);
            early_.erase(at);
            return true;
        }
        wanted_.push_back(std::move(transfer));
        return false;
    }

    /// Moves what can be moved now; `done(ticket)` for each transfer that ends. Returns the bytes moved.
    template <class Done>
    int64_t move(const Done& done) {
        int64_t bytes = 0;
        while (pull(in_, bytes)) {
            const bool met = in_.header.bytes == Header::met;
            if (met) in_.ticket = in_.header.ticket;
            // Asked for while it was on its way: the receive stands among the wanted by now.
            if (const auto asked = in_.ticket == 0 ? wanted(in_.header) : wanted_.end(); asked != wanted_.end()) {
                std::copy(in_.early.begin(), in_.early.end(), asked->data);
                in_.ticket = asked->ticket;
                wanted_.erase(asked);
            }
            if (in_.ticket != 0) {
                if (!met) acknowledge(in_.header);
                done(in_.ticket);
            } else {
                early_.push_back(std::move(in_));
            }
            in_ = {};
        }
        // What is sent is done when it is met: bytes in a socket's buffer have reached nobody.
        while (!out_.empty() && push(out_.front(), bytes)) out_.pop_front();
        return bytes;
    }

private:
    void acknowledge(const Header& header) {
        out_.push_back({{header.channel, Header::met, header.ticket}, nullptr, 0, 0, {}});
    }

    /// The part of header or data that comes next.
    static std::pair<char*, size_t> next(Transfer& t) {
        const auto header = static_cast<int64_t>(sizeof t.header);
        if (t.moved < header)
            return {reinterpret_cast<char*>(&t.header) + t.moved, static_cast<size_t>(header - t.moved)};
        return {t.data + (t.moved - header), static_cast<size_t>(t.header.bytes - (t.moved - header))};
    }

    bool push(Transfer& t, int64_t& bytes) {
        while (!t.over()) {
            const auto [data, left] = next(t);
            const ssize_t n = ::send(socket_, data, left, MSG_DONTWAIT | MSG_NOSIGNAL);
            if (n < 0) {
                closed_ = closed_ || (errno != EAGAIN && errno != EINTR);
                return false;
            }
            t.moved += n;
            bytes += n;
        }
        return true;
    }

    bool pull(Transfer& t, int64_t& bytes) {
        while (t.moved < static_cast<int64_t>(sizeof t.header) || !t.over()) {
            const auto [data, left] = next(t);
            const ssize_t n = ::recv(socket_, data, left, MSG_DONTWAIT);
            if (n <= 0) {
                closed_ = closed_ || n == 0 || (errno != EAGAIN && errno != EINTR);
                return false;
            }
            t.moved += n;
            bytes += n;
            if (t.moved == static_cast<int64_t>(sizeof t.header)) find_place(t);
        }
        return true;
    }

    std::deque<Transfer>::iterator wanted(const Header& header) {
        return std::find_if(wanted_.begin(), wanted_.end(),
                            [&](const Transfer& w) { return header.matches(w.header); });
    }

    /// Where the bytes behind a header go: to the first receive of that channel and size, or aside.
    void find_place(Transfer& t) {
        if (t.header.bytes == Header::met) return;
        const auto found = wanted(t.header);
        if (found == wanted_.end()) {
            t.early.resize(static_cast<size_t>(t.header.bytes));
            t.data = t.early.data();
            return;
        }
        t.data = found->data;
        t.ticket = found->ticket;
        wanted_.erase(found);
    }

    int socket_ = -1;
    bool closed_ = false;
    std::deque<Transfer> out_, wanted_, early_;
    Transfer in_;
};

class Sundial final : public P2pCommunicator {
public:
    Sundial(const Group& group, std::vector<Link> links, std::vector<int64_t> pids, const Rendezvous& rendezvous,
            Milliseconds timeout, const P2pOptions& options)
        : P2pCommunicator(group, options),
          links_(std::move(links)),
          pids_(std::move(pids)),
          rendezvous_(rendezvous),
          timeout_(timeout) {}

    ~Sundial() override {
        mover_ = {};
        // The last words to the others, who may still wait for them.
        const auto sends = [](const Link& l) { return l.sends() && !l.closed(); };
        for (int i = 0; i < 100 && !over_ && std::any_of(links_.begin(), links_.end(), sends); ++i) progress(10);
    }

    bool done(uint64_t ticket) override {
        progress(0);
        return !under_way(ticket);
    }

    void abort(std::string_view reason) override {
        const std::lock_guard lock(mutex_);
        if (why_.empty()) why_ = rank_text(group().me) + " gave up: " + std::string(reason);
        over_ = true;
        for (const Link& link : links_)
            if (link.socket() >= 0) ::shutdown(link.socket(), SHUT_RDWR);  // the others see it at once
    }

protected:
    uint64_t start_send(int peer, const void* data, int64_t bytes, uint64_t channel) override {
        const std::lock_guard lock(mutex_);
        peer_of_[++ticket_] = peer;
        link(peer).send({{channel, bytes, ticket_}, static_cast<char*>(const_cast<void*>(data)), 0, ticket_, {}});
        move();
        return ticket_;
    }

    uint64_t start_receive(int peer, void* data, int64_t bytes, uint64_t channel) override {
        const std::lock_guard lock(mutex_);
        peer_of_[++ticket_] = peer;
        if (link(peer).receive({{channel, bytes, 0}, static_cast<char*>(data), 0, ticket_, {}}))
            peer_of_.erase(ticket_);
        move();
        return ticket_;
    }

    void finish(uint64_t ticket) override {
        const Waiting here(waiting_);
        auto deadline = Clock::now() + timeout_;
        while (const auto transfer = under_way(ticket)) {
            if (progress(50) > 0) {
                deadline = Clock::now() + timeout_;
                continue;
            }
            const auto [peer, closed] = *transfer;
            if (over_) fail(why());
            if (const orrery::Message lost = rendezvous_.lost(); !lost.empty()) fail(lost.shown());
            if (closed) {
                ::poll(nullptr, 0, 200);  // the rendezvous soon knows whose death closed it
                const orrery::Message lost = rendezvous_.lost();
                fail(over_ ? why() : !lost.empty() ? lost.shown() : rank_text(peer) + " closed its connection");
            }
            if (Clock::now() >= deadline)
                fail(rank_text(peer) + " timed out: no answer within " + std::to_string(timeout_.count()) +
                     " ms; its process " + process_state(pids_[static_cast<size_t>(peer)]));
        }
    }

private:
    /// While somebody waits, the mover does not take what that one waits for.
    struct Waiting {
        explicit Waiting(std::atomic<int>& count) : count_(count) { ++count_; }
        ~Waiting() { --count_; }
        std::atomic<int>& count_;
    };

    Link& link(int peer) { return links_[static_cast<size_t>(peer)]; }

    /// The peer of a transfer that is not done, and whether the connection to it is closed.
    std::optional<std::pair<int, bool>> under_way(uint64_t ticket) {
        const std::lock_guard lock(mutex_);
        const auto at = peer_of_.find(ticket);
        return at == peer_of_.end() ? std::nullopt : std::optional(std::pair(at->second, link(at->second).closed()));
    }

    /// Waits at most so long for something to move, and moves it.
    int64_t progress(int wait_ms) {
        std::vector<pollfd> polled;
        {
            const std::lock_guard lock(mutex_);
            for (const Link& l : links_)
                if (l.socket() >= 0 && !l.closed())
                    polled.push_back({l.socket(), static_cast<short>(POLLIN | (l.sends() ? POLLOUT : 0)), 0});
        }
        ::poll(polled.data(), polled.size(), wait_ms);
        const std::lock_guard lock(mutex_);
        return move();
    }

    int64_t move() {
        int64_t bytes = 0;
        for (Link& l : links_)
            if (l.socket() >= 0) bytes += l.move([&](uint64_t ticket) { peer_of_.erase(ticket); });
        return bytes;
    }

    std::string why() {
        const std::lock_guard lock(mutex_);
        return why_;
    }

    [[noreturn]] void fail(const std::string& why) const { throw Error(what() + ": " + why, Fault::peer); }

    std::vector<Link> links_;          ///< by member; the own one is empty
    const std::vector<int64_t> pids_;  ///< of the members' processes, for messages
    const Rendezvous& rendezvous_;
    const Milliseconds timeout_;
    uint64_t ticket_ = 0;
    std::map<uint64_t, int> peer_of_;  ///< of the transfers under way
    std::atomic<bool> over_{false};
    std::mutex mutex_;  ///< guards links_, peer_of_ and why_
    std::string why_;
    std::atomic<int> waiting_{0};
    /// What is under way moves on while this rank computes, or waits for something else.
    std::jthread mover_{[this](const std::stop_token& stop) {
        for (; !stop.stop_requested(); ::poll(nullptr, 0, 2))
            if (waiting_ == 0) progress(0);
    }};
};

[[noreturn]] void fail(const Group& group, const std::string& what) {
    throw Error("transport sundial: " + group.name + ": cannot " + what + ": " + std::strerror(errno), Fault::peer);
}

/// A socket that the others can connect to, and its address: the kernel picks a name that no file bears.
std::pair<Link, std::string> listen(const Group& group) {
    Link link(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{AF_UNIX, {}};
    socklen_t length = sizeof(sa_family_t);
    if (link.socket() < 0 || ::bind(link.socket(), reinterpret_cast<sockaddr*>(&address), length) != 0)
        fail(group, "make a socket");
    length = sizeof address;
    if (::getsockname(link.socket(), reinterpret_cast<sockaddr*>(&address), &length) != 0 ||
        ::listen(link.socket(), group.size()) != 0)
        fail(group, "listen");
    return {std::move(link), std::string(address.sun_path + 1, length - sizeof(sa_family_t) - 1)};
}

Link connect(const Group& group, const std::string& name) {
    Link link(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{AF_UNIX, {}};
    std::copy(name.begin(), name.end(), address.sun_path + 1);
    const auto length = static_cast<socklen_t>(sizeof(sa_family_t) + 1 + name.size());
    if (::connect(link.socket(), reinterpret_cast<sockaddr*>(&address), length) != 0 ||
        ::send(link.socket(), &group.me, sizeof group.me, MSG_NOSIGNAL) != sizeof group.me)
        fail(group, "connect");
    return link;
}

/// The next member that connects, and who it is. Strangers are sent away.
std::pair<Link, int> accept(const Group& group, const Link& listener, Milliseconds timeout) {
    for (pollfd polled{listener.socket(), POLLIN, 0};;) {
        if (::poll(&polled, 1, static_cast<int>(timeout.count())) <= 0) fail(group, "meet all members");
        Link link(::accept4(listener.socket(), nullptr, nullptr, SOCK_CLOEXEC));
        ucred peer{};
        socklen_t length = sizeof peer;
        int member = -1;
        if (::getsockopt(link.socket(), SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0 || peer.uid != ::getuid())
            continue;
        if (::recv(link.socket(), &member, sizeof member, MSG_WAITALL) == sizeof member && member > group.me &&
            member < group.size())
            return {std::move(link), member};
    }
}

class SundialTransport final : public Transport {
public:
    explicit SundialTransport(Config& config) : options_(P2pOptions::read(config)) {}

    /// What the checker proves plans with: promise no more than is kept, the conformance suite tests it.
    TransportContract contract() const override {
        TransportContract c = options_.contract();
        c.same_host = true;
        return c;
    }

    std::unique_ptr<Communicator> make(const Group& group, Rendezvous& rendezvous, std::span<const Memory>,
                                       Milliseconds timeout) override {
        const std::string name = fresh_name(group, rendezvous);
        const auto [listener, address] = listen(group);
        const auto addresses = exchange(group, rendezvous, name + "/socket", address, timeout);
        std::vector<int64_t> pids;
        for (const std::string& pid :
             exchange(group, rendezvous, name + "/process", std::to_string(::getpid()), timeout))
            pids.push_back(std::stoll(pid));
        std::vector<Link> links(static_cast<size_t>(group.size()));
        for (int i = 0; i < group.me; ++i)
            links[static_cast<size_t>(i)] = connect(group, addresses[static_cast<size_t>(i)]);
        for (int i = group.me + 1; i < group.size(); ++i) {
            auto [link, member] = accept(group, listener, timeout);
            links[static_cast<size_t>(member)] = std::move(link);
        }
        options_.require_alike(group, rendezvous, name + "/ready", timeout);  // nobody leaves before all are connected
        return std::make_unique<Sundial>(group, std::move(links), std::move(pids), rendezvous, timeout, options_);
    }

private:
    const P2pOptions options_;
};

void add(Registry& registry) {
    registry.add_transport("sundial", [](Config& config) { return std::make_unique<SundialTransport>(config); });
}

}  // namespace

ORRERY_FACTS("devices=cpu");
ORRERY_PLUGIN("transport.sundial", "0.1", add);
