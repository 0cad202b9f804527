#include "mesh.h"

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
#include <utility>

#include "orrery/p2p.h"

namespace orrery::gloo_transport {
namespace {

using Milliseconds = std::chrono::milliseconds;

/// Gloo's view of the job's store.
class Store : public ::gloo::rendezvous::Store {
public:
    Store(Rendezvous& rendezvous, std::string prefix, Milliseconds timeout)
        : rendezvous_(rendezvous), prefix_(std::move(prefix)), timeout_(timeout) {}

    void set(const std::string& key, const std::vector<char>& data) override {
        rendezvous_.set(prefix_ + key, std::string_view(data.data(), data.size()));
    }
    std::vector<char> get(const std::string& key) override {
        const std::string value = rendezvous_.get(prefix_ + key, timeout_);
        return {value.begin(), value.end()};
    }
    void wait(const std::vector<std::string>& keys) override { wait(keys, timeout_); }
    void wait(const std::vector<std::string>& keys, const Milliseconds& timeout) override {
        for (const std::string& key : keys) rendezvous_.get(prefix_ + key, timeout);
    }

private:
    Rendezvous& rendezvous_;
    const std::string prefix_;
    const Milliseconds timeout_;
};

/// The name's first address that this host can listen at, in numbers: Gloo does not look whether a name resolves, and
/// reads what is not there.
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
    throw Error("transport gloo: host '" + host + "' is no address of this machine: " + why +
                "; set transport.gloo.interface or transport.gloo.host to one of it");
}

/// While it lives, threads that this one makes can be told from all others: they are SCHED_BATCH.
class MarkedThreads {
public:
    MarkedThreads() : changed_(::sched_getscheduler(0) == SCHED_OTHER && set(0, SCHED_BATCH)) {}
    ~MarkedThreads() {
        if (changed_) set(0, SCHED_OTHER);
    }
    MarkedThreads(const MarkedThreads&) = delete;
    MarkedThreads& operator=(const MarkedThreads&) = delete;

    /// The one that has been made; 0: it cannot be told.
    int made() const {
        int found = 0;
        std::error_code failed;
        if (!changed_) return 0;
        for (const auto& task : std::filesystem::directory_iterator("/proc/self/task", failed)) {
            const int id = std::atoi(task.path().filename().c_str());
            if (id == ::gettid() || ::sched_getscheduler(id) != SCHED_BATCH) continue;
            set(id, SCHED_OTHER);  // no mark is left for the next one to find
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

void LoopThread::may_interrupt(bool yes) const {
    if (id_ != 0) MarkedThreads::set(id_, yes ? SCHED_OTHER : SCHED_BATCH);
}

OpenDevice open_device(const std::string& interface, const std::string& host) {
    ::gloo::transport::tcp::attr attr;
    attr.iface = interface;
    if (interface.empty()) attr.hostname = own_address(host);
    try {
        const MarkedThreads marked;
        auto device = ::gloo::transport::tcp::CreateDevice(attr);
        return {std::move(device), LoopThread(marked.made())};
    } catch (const std::exception& error) {
        throw Error("transport gloo: cannot open " + (host.empty() ? "interface '" + interface : "host '" + host) +
                    "': " + error.what() +
                    "; set transport.gloo.interface or transport.gloo.host to one of this machine");
    }
}

std::shared_ptr<::gloo::Context> connect(const Group& group, Rendezvous& rendezvous,
                                         std::shared_ptr<::gloo::transport::Device> device, const std::string& name,
                                         Milliseconds timeout) {
    // Gloo writes with writev: a peer that died would end this process too, before it could say why.
    struct sigaction pipe {};
    if (::sigaction(SIGPIPE, nullptr, &pipe) == 0 && pipe.sa_handler == SIG_DFL) ::signal(SIGPIPE, SIG_IGN);
    auto context = std::make_shared<::gloo::rendezvous::Context>(group.me, group.size());
    context->setTimeout(timeout);
    Store store(rendezvous, name + "/gloo/", timeout);
    try {
        context->connectFullMesh(store, device);
    } catch (const ::gloo::Exception& error) {
        throw Error("transport gloo: the members of " + group.name + " cannot connect over " + device->str() + ": " +
                        error.what(),
                    Fault::peer);
    }
    return context;
}

/// Gloo's buffer begins at address 0 and has no end: what is sent from it lies at the offset that is its address, so
/// that one buffer serves every message. Gloo reads and writes at begin + offset alone and registers nothing for TCP.
Transfer::Transfer(::gloo::Context& context, LoopThread loop)
    : loop_(loop), buffer_(context.createUnboundBuffer(nullptr, SIZE_MAX)) {}

void Transfer::start(void* data, int64_t bytes, int peer, bool sends, uint64_t slot) {
    peer_ = peer;
    sends_ = sends;
    const auto at = reinterpret_cast<uintptr_t>(data);
    loop_.may_interrupt(false);
    if (sends)
        buffer_->send(peer, slot, at, static_cast<size_t>(bytes));
    else
        buffer_->recv(peer, slot, at, static_cast<size_t>(bytes));
    loop_.may_interrupt(true);
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
