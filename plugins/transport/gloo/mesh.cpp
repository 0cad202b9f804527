#include "mesh.h"

#include <gloo/transport/context.h>
#include <gloo/transport/pair.h>
#include <gloo/transport/tcp/address.h>
#include <gloo/transport/tcp/device.h>
#include <netdb.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "orrery/p2p.h"

namespace orrery::gloo_transport {
namespace {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;

/// The first address of the name that this host can listen at, in numeric form. Gloo does not check whether a name
/// resolves, and reads invalid memory if not.
std::string own_address(const std::string& host) {
    addrinfo hints{}, *found = nullptr;
    hints.ai_socktype = SOCK_STREAM;
    std::string why;
    if (const int rc = ::getaddrinfo(host.c_str(), nullptr, &hints, &found)) {
        why = ::gai_strerror(rc);
        found = nullptr;
    }
    const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> keep(found, ::freeaddrinfo);
    for (const addrinfo* a = found; a; a = a->ai_next) {
        const int fd = ::socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        const bool here = fd >= 0 && ::bind(fd, a->ai_addr, a->ai_addrlen) == 0;
        if (!here) why = std::strerror(errno);
        if (fd >= 0) ::close(fd);
        char text[NI_MAXHOST] = {};
        if (here && ::getnameinfo(a->ai_addr, a->ai_addrlen, text, sizeof text, nullptr, 0, NI_NUMERICHOST) == 0)
            return text;
    }
    throw Error("transport gloo: host '" + host + "' is not an address of this machine: " + why +
                "; set transport.gloo.interface or transport.gloo.host to one of this machine");
}

/// During its lifetime, threads that the calling thread creates are SCHED_BATCH, so that they can be identified.
class MarkedThreads {
public:
    MarkedThreads() : changed_(::sched_getscheduler(0) == SCHED_OTHER && set(0, SCHED_BATCH)) {}
    ~MarkedThreads() {
        if (changed_) set(0, SCHED_OTHER);
    }
    MarkedThreads(const MarkedThreads&) = delete;
    MarkedThreads& operator=(const MarkedThreads&) = delete;

    /// The id of the created thread; 0 when it cannot be identified.
    int made() const {
        int found = 0;
        std::error_code failed;
        if (!changed_) return 0;
        for (const auto& task : std::filesystem::directory_iterator("/proc/self/task", failed)) {
            const int id = std::atoi(task.path().filename().c_str());
            if (id == ::gettid() || ::sched_getscheduler(id) != SCHED_BATCH) continue;
            set(id, SCHED_OTHER);  // remove the mark, so that the next one does not find it
            if (found != 0) return 0;
            found = id;
        }
        return found;
    }

    static bool set(int thread, int policy) {
        const sched_param none{};
        return ::sched_setscheduler(thread, policy, &none) == 0;
    }

private:
    const bool changed_;
};

}  // namespace

std::string host_name() {
    char name[256] = {};
    ::gethostname(name, sizeof name - 1);
    return name;
}

void LoopThread::may_interrupt(bool yes) const {
    if (id_ != 0) MarkedThreads::set(id_, yes ? SCHED_OTHER : SCHED_BATCH);
}

namespace {

using TcpDevice = ::gloo::transport::tcp::Device;
using TcpAttributes = ::gloo::transport::tcp::attr;

/// Gloo lets each pair listen at a port of the system's choice, until its peer has connected. A pair takes the port
/// from its device's attributes, so this device replaces them before each pair.
class RangedDevice : public TcpDevice {
public:
    RangedDevice(const TcpAttributes& opened, const Ports& ports) : TcpDevice(opened), ports(ports) {}

    /// The next pair listens at `port`.
    void listen_at(int port) {
        TcpAttributes next = attr_;
        const auto network = htons(static_cast<uint16_t>(port));
        if (next.ai_addr.ss_family == AF_INET6)
            reinterpret_cast<sockaddr_in6&>(next.ai_addr).sin6_port = network;
        else
            reinterpret_cast<sockaddr_in&>(next.ai_addr).sin_port = network;
        std::destroy_at(&attr_);  // a const member
        std::construct_at(const_cast<TcpAttributes*>(&attr_), next);
    }

    const Ports ports;
};

}  // namespace

OpenDevice open_device(const std::string& interface, const std::string& host, const Ports& ports) {
    ::gloo::transport::tcp::attr attr;
    attr.iface = interface;
    if (interface.empty()) attr.hostname = own_address(host);
    try {
        const MarkedThreads marked;
        std::shared_ptr<::gloo::transport::Device> device;
        if (ports.count() > 0)
            device = std::make_shared<RangedDevice>(::gloo::transport::tcp::CreateDeviceAttr(attr), ports);
        else
            device = ::gloo::transport::tcp::CreateDevice(attr);
        return {std::move(device), LoopThread(marked.made())};
    } catch (const std::exception& error) {
        throw Error("transport gloo: cannot open " + (host.empty() ? "interface '" + interface : "host '" + host) +
                    "': " + error.what() +
                    "; set transport.gloo.interface or transport.gloo.host to one of this machine");
    }
}

namespace {

/// Gloo's context with a pair for each other member, which connect() below connects one after the other. Gloo's own
/// connectFullMesh waits for each five times as long as any other wait, even when a rank is lost.
class Mesh : public ::gloo::Context {
public:
    Mesh(const Group& group, std::shared_ptr<::gloo::transport::Device> device, Milliseconds timeout)
        : ::gloo::Context(group.me, group.size()) {
        setTimeout(timeout);
        transportContext_ = device->createContext(rank, size);
        transportContext_->setTimeout(timeout);
        device_ = std::move(device);
        auto* const ranged = dynamic_cast<RangedDevice*>(device_.get());
        for (int peer = 0, port = ranged ? ranged->ports.first : 0; peer < size; ++peer)
            if (peer != rank) ranged ? listen(*ranged, peer, port) : void(transportContext_->createPair(peer));
    }

    /// No port from `port` on is free for another pair.
    struct NoPort {
        int pairs;  ///< number of pairs that have got one
    };

    /// The addresses for each other member to connect to, concatenated, all of the same length.
    std::string addresses() {
        std::string all;
        for (int peer = 0; peer < size; ++peer) {
            if (peer == rank) continue;
            const std::vector<char> bytes = getPair(peer)->address().bytes();
            all.append(bytes.data(), bytes.size());
        }
        return all;
    }

    /// The address for this member among the addresses that `peer` has sent.
    std::vector<char> address_of(int peer, const std::string& told) const {
        const size_t bytes = told.size() / static_cast<size_t>(size - 1);
        const auto at = static_cast<std::ptrdiff_t>(bytes * static_cast<size_t>(rank > peer ? rank - 1 : rank));
        return {told.begin() + at, told.begin() + at + static_cast<std::ptrdiff_t>(bytes)};
    }

private:
    /// Makes the pair for `peer`, which listens at the first free port from `port` on; then `port` is the next one.
    void listen(RangedDevice& device, int peer, int& port) {
        for (; port <= device.ports.last; ++port) {
            device.listen_at(port);
            try {
                transportContext_->createPair(peer);
                ++port;
                return;
            } catch (const ::gloo::IoException&) {  // it is in use
            }
        }
        throw NoPort{peer - (peer > rank)};
    }
};

/// Makes the mesh. While too few ports are free, gives up those that it has, since other ranks may wait for them, and
/// tries again until the deadline.
std::shared_ptr<Mesh> listening(const Group& group, const std::shared_ptr<::gloo::transport::Device>& device,
                                Milliseconds timeout) {
    const auto deadline = Clock::now() + timeout;
    for (int wait_ms = 10 + 7 * group.me;; wait_ms = std::min(2 * wait_ms, 500)) {
        try {
            return std::make_shared<Mesh>(group, device, timeout);
        } catch (const Mesh::NoPort& found) {
            if (Clock::now() + Milliseconds(wait_ms) < deadline) {
                std::this_thread::sleep_for(Milliseconds(wait_ms));
                continue;
            }
            const Ports& ports = dynamic_cast<const RangedDevice&>(*device).ports;
            throw Error("transport gloo: rank " + std::to_string(group.ranks[static_cast<size_t>(group.me)]) + " of " +
                            group.name + " needs " + std::to_string(group.size() - 1) +
                            " ports at the same time, one for each other member, but of the " +
                            std::to_string(ports.count()) + " of run.ports = \"" + ports.text() + "\" it found only " +
                            std::to_string(found.pairs) + " free within " + std::to_string(timeout.count()) +
                            " ms\n  end other processes that listen at them, or give a larger range",
                        Fault::failed);
        }
    }
}

/// Ends the wait for a pair that does not connect: at the deadline, or when a rank of the job is lost.
class ConnectWatch {
public:
    ConnectWatch(Mesh& mesh, const Rendezvous& rendezvous)
        : mesh_(mesh), rendezvous_(rendezvous), thread_([this](std::stop_token stop) { run(stop); }) {}

    /// Sets the pair that is waited for from now on; -1: none.
    void wait_for(int peer, Clock::time_point deadline) {
        const std::lock_guard lock(mutex_);
        peer_ = over_ ? -1 : peer;
        deadline_ = deadline;
    }
    /// The lost rank; empty when none is lost.
    Message lost() const {
        const std::lock_guard lock(mutex_);
        return lost_;
    }
    bool over() const {
        const std::lock_guard lock(mutex_);
        return over_;
    }

private:
    void run(std::stop_token stop) {
        for (; !stop.stop_requested(); std::this_thread::sleep_for(Milliseconds(10))) {
            const std::lock_guard lock(mutex_);
            lost_ = rendezvous_.lost();
            if (peer_ < 0 || (lost_.empty() && Clock::now() < deadline_)) continue;
            over_ = true;
            mesh_.getPair(std::exchange(peer_, -1))->close();  // this makes its wait return as if it were connected
        }
    }

    Mesh& mesh_;
    const Rendezvous& rendezvous_;
    mutable std::mutex mutex_;  // guards the members below
    int peer_ = -1;
    Clock::time_point deadline_{};
    Message lost_;
    bool over_ = false;
    std::jthread thread_;
};

/// Whether this member starts the connection. Gloo decides that by the addresses of both ends.
bool begins(Mesh& mesh, int peer, const std::vector<char>& address) {
    using ::gloo::transport::tcp::Address;
    const sockaddr_storage mine = Address(mesh.getPair(peer)->address().bytes()).getSockaddr();
    const sockaddr_storage its = Address(address).getSockaddr();
    if (mine.ss_family == AF_INET6) {
        const auto &a = reinterpret_cast<const sockaddr_in6&>(mine), &b = reinterpret_cast<const sockaddr_in6&>(its);
        const int order = std::memcmp(&a.sin6_addr, &b.sin6_addr, sizeof a.sin6_addr);
        return order > 0 || (order == 0 && a.sin6_port > b.sin6_port);
    }
    const auto &a = reinterpret_cast<const sockaddr_in&>(mine), &b = reinterpret_cast<const sockaddr_in&>(its);
    const int order = std::memcmp(&a.sin_addr, &b.sin_addr, sizeof a.sin_addr);
    return order > 0 || (order == 0 && a.sin_port > b.sin_port);
}

/// The ports that a firewall must let through.
std::string ports_text(const ::gloo::transport::Device& device) {
    const auto* const ranged = dynamic_cast<const RangedDevice*>(&device);
    return ranged ? "the ports " + ranged->ports.text() + " (run.ports)"
                  : "all ports (or those of a range, set in run.ports)";
}

/// Formats an address of Gloo's: "[10.0.0.2]:4242".
std::string address_text(const std::vector<char>& bytes) {
    const sockaddr_storage address = ::gloo::transport::tcp::Address(bytes).getSockaddr();
    char host[NI_MAXHOST] = {}, port[NI_MAXSERV] = {};
    const auto* const generic = reinterpret_cast<const sockaddr*>(&address);
    if (::getnameinfo(generic, sizeof address, host, sizeof host, port, sizeof port, NI_NUMERICHOST | NI_NUMERICSERV))
        return "an unknown address";
    const std::string name = host;
    return (name.find(':') == std::string::npos ? name : "[" + name + "]") + ":" + port;
}

}  // namespace

Connected connect(const Group& group, Rendezvous& rendezvous, std::shared_ptr<::gloo::transport::Device> device,
                  const std::string& name, Milliseconds timeout) {
    // Gloo writes with writev: SIGPIPE of a dead peer would end this process before it can report the error.
    struct sigaction pipe {};
    if (::sigaction(SIGPIPE, nullptr, &pipe) == 0 && pipe.sa_handler == SIG_DFL) ::signal(SIGPIPE, SIG_IGN);
    const auto mesh = listening(group, device, timeout);
    const std::vector<std::string> told =
        exchange(group, rendezvous, name + "/gloo", host_name() + "\n" + mesh->addresses(), timeout);
    Connected made{mesh, std::vector<std::string>(told.size(), "this rank")};
    const auto deadline = Clock::now() + timeout;
    // Gloo decides which member connects first. A member that only accepts may wait for one that is itself blocked by a
    // third: that one gets a second to report it.
    constexpr auto settled = Milliseconds(1000);
    ConnectWatch watch(*mesh, rendezvous);
    for (int peer = 0; peer < group.size(); ++peer) {
        const auto p = static_cast<size_t>(peer);
        if (peer == group.me) continue;
        const size_t line = told[p].find('\n');
        const std::vector<char> address = mesh->address_of(peer, told[p].substr(line + 1));
        made.places[p] = "rank " + std::to_string(group.ranks[p]) + " on host " + told[p].substr(0, line) + " at " +
                         address_text(address);
        std::string how;
        watch.wait_for(peer, deadline + (begins(*mesh, peer, address) ? Milliseconds(0) : settled));
        try {
            if (!watch.over()) mesh->getPair(peer)->connect(address);
        } catch (const std::exception& error) {  // also Gloo's failed assertions about a pair that was closed meanwhile
            how = error.what();
        }
        watch.wait_for(-1, {});
        if (how.empty() && !watch.over()) continue;
        // A refused connection is often a dead process: the rendezvous soon reports which one.
        for (int i = 0; !watch.over() && watch.lost().empty() && i < 30; ++i)
            std::this_thread::sleep_for(Milliseconds(10));
        if (const Message lost = watch.lost(); !lost.empty())
            throw Error("transport gloo: connecting " + group.name + ": " + lost.shown(), Fault::peer);
        throw Error("transport gloo: rank " + std::to_string(group.ranks[static_cast<size_t>(group.me)]) +
                        " cannot connect to " + made.places[p] + " over " + device->str() + ": " +
                        (watch.over() ? "no answer within " + std::to_string(timeout.count()) +
                                            " ms (raise it by run.timeout_s or transport.gloo.timeout_s)"
                                      : how) +
                        "; open " + ports_text(*device) + " between both hosts, in both directions",
                    Fault::peer);
    }
    return made;
}

/// Gloo's buffer begins at address 0 and has no end, so a message's offset is its address and one buffer serves every
/// message. Gloo reads and writes at begin + offset only, and registers no memory for TCP.
Transfer::Transfer(::gloo::Context& context, LoopThread loop)
    : loop_(loop), buffer_(context.createUnboundBuffer(nullptr, SIZE_MAX)) {}

void Transfer::start(void* data, int64_t bytes, int peer, bool sends, uint64_t slot) {
    peer_ = peer;
    bytes_ = bytes;
    sends_ = sends;
    const auto at = reinterpret_cast<uintptr_t>(data);
    loop_.may_interrupt(false);
    if (sends)
        buffer_->send(peer, slot, at, static_cast<size_t>(bytes));
    else
        buffer_->recv(peer, slot, at, static_cast<size_t>(bytes));
    loop_.may_interrupt(true);
}

std::string Transfer::text() const {
    const std::string bytes = std::to_string(bytes_);
    return std::string("it waited for a message of ") + bytes + " bytes " + (sends_ ? "to" : "from");
}

bool Transfer::wait_here(Milliseconds timeout) {
    loop_.may_interrupt(false);
    const bool whole = sends_ ? buffer_->waitSend(timeout) : buffer_->waitRecv(timeout);
    loop_.may_interrupt(true);
    return whole;
}

bool Transfer::wait(Milliseconds timeout) { return waiter_.valid() ? waiter_.get() : wait_here(timeout); }

bool Transfer::done(Milliseconds timeout) {
    if (!waiter_.valid()) waiter_ = std::async(std::launch::async, [this, timeout] { return wait_here(timeout); });
    return waiter_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

void Transfer::cancel() {
    if (sends_)
        buffer_->abortWaitSend();
    else
        buffer_->abortWaitRecv();
}

}  // namespace orrery::gloo_transport
