#include "sockets.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <memory>
#include <utility>

#include "orrery/error.h"
#include "orrery/p2p.h"

namespace tcp {

using orrery::Error;

namespace {

using Found = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

/// Sets no delay, keepalive, and an error instead of endless resending when the other end is cut off.
void tune(int socket, std::chrono::milliseconds silence) {
    const int on = 1;
    const auto unsent_ms = static_cast<int>(std::min<int64_t>(silence.count(), std::numeric_limits<int>::max()));
    ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    ::setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    ::setsockopt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &unsent_ms, sizeof unsent_ms);
}

std::string address_of(const sockaddr_storage& address, socklen_t size) {
    char text[NI_MAXHOST] = {};
    if (getnameinfo(reinterpret_cast<const sockaddr*>(&address), size, text, sizeof text, nullptr, 0, NI_NUMERICHOST))
        return "an unknown address";
    return text;
}

}  // namespace

Fd& Fd::operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
}

Fd::~Fd() {
    if (fd_ >= 0) ::close(fd_);
}

namespace {

/// A listener, or none with the reason in errno.
Fd listener_at(const std::string& host, int port) {
    addrinfo hints{}, *list = nullptr;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_PASSIVE;
    const std::string service = std::to_string(port);
    if (const int rc = getaddrinfo(host.empty() ? nullptr : host.c_str(), service.c_str(), &hints, &list))
        throw Error("rendezvous: cannot resolve host '" + host + "': " + gai_strerror(rc));
    const Found found(list, freeaddrinfo);
    int reason = 0;
    for (const addrinfo* a = found.get(); a; a = a->ai_next) {  // a name may also have addresses of other hosts
        Fd fd(::socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
        const int on = 1;
        ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        // A long queue, in which ranks wait during a flood of unauthenticated connections.
        if (::bind(fd.get(), a->ai_addr, a->ai_addrlen) == 0 && ::listen(fd.get(), SOMAXCONN) == 0) return fd;
        if (reason != EADDRINUSE) reason = errno;
    }
    errno = reason;
    return {};
}

}  // namespace

Fd listen_on(const std::string& host, int port, const Ports& free) {
    const bool any_of_range = port == 0 && free.last > 0;
    for (int one = any_of_range ? free.first : port; one <= (any_of_range ? free.last : port); ++one) {
        if (Fd fd = listener_at(host, one)) return fd;
        if (errno != EADDRINUSE)
            throw Error("rendezvous: cannot listen on " + place_text(host, one) + ": " + std::strerror(errno));
    }
    if (any_of_range)
        throw Error("rendezvous: all " + std::to_string(free.last - free.first + 1) + " ports of run.ports = \"" +
                    std::to_string(free.first) + "-" + std::to_string(free.last) + "\" are in use on " + host +
                    " by other processes; end those, or give a range that has a free port");
    throw Error("rendezvous: port " + std::to_string(port) + " of " + host +
                " is in use by another process; choose another, or port 0 for any free one");
}

int port_of(int socket) {
    sockaddr_storage address{};
    socklen_t size = sizeof address;
    ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size);
    char service[16] = {};
    getnameinfo(reinterpret_cast<sockaddr*>(&address), size, nullptr, 0, service, sizeof service, NI_NUMERICSERV);
    return std::stoi(service);
}

Fd accept_one(int listener, std::string& from, std::chrono::milliseconds silence) {
    sockaddr_storage address{};
    socklen_t size = sizeof address;
    Fd fd(::accept4(listener, reinterpret_cast<sockaddr*>(&address), &size, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd) return fd;
    tune(fd.get(), silence);
    from = address_of(address, size);
    return fd;
}

Fd try_connect(const std::string& host, int port, Clock::time_point deadline, std::chrono::milliseconds silence,
               std::string& why) {
    addrinfo hints{}, *list = nullptr;
    hints.ai_socktype = SOCK_STREAM;
    if (const int rc = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list)) {
        why = gai_strerror(rc);
        return {};
    }
    const Found found(list, freeaddrinfo);
    for (const addrinfo* a = found.get(); a; a = a->ai_next) {
        Fd fd(::socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
        if (!fd) continue;
        int error = ::connect(fd.get(), a->ai_addr, a->ai_addrlen) == 0 ? 0 : errno;
        if (error == EINPROGRESS) {
            pollfd p{fd.get(), POLLOUT, 0};
            socklen_t size = sizeof error;
            if (::poll(&p, 1, left_ms(deadline)) == 1)
                ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
            else
                error = ETIMEDOUT;
        }
        if (error == 0) {
            tune(fd.get(), silence);
            return fd;
        }
        why = std::strerror(error);
    }
    return {};
}

std::string local_address(int socket) {
    sockaddr_storage address{};
    socklen_t size = sizeof address;
    ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size);
    return address_of(address, size);
}

std::string place_text(const std::string& host, int port) {
    return (host.find(':') == std::string::npos ? host : "[" + host + "]") + ":" + std::to_string(port);
}

int64_t send_some(int socket, const char* data, size_t bytes) {
    for (;;) {
        const ssize_t n = ::send(socket, data, bytes, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return 0;
        return n > 0 ? n : -1;
    }
}

int64_t receive_some(int socket, char* data, size_t bytes) {
    for (;;) {
        const ssize_t n = ::recv(socket, data, bytes, 0);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return 0;
        return n > 0 ? n : -1;
    }
}

Fd make_bell() { return Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)); }

void ring(const Fd& bell) {
    const uint64_t one = 1;
    [[maybe_unused]] const auto written = ::write(bell.get(), &one, sizeof one);
}

void silence(const Fd& bell) {
    uint64_t rung = 0;
    [[maybe_unused]] const auto read = ::read(bell.get(), &rung, sizeof rung);
}

int left_ms(Clock::time_point deadline) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    return static_cast<int>(std::clamp<int64_t>(left, 0, 1 << 30));
}

orrery::LinkTime link_time(Clock::time_point time) { return time.time_since_epoch(); }

orrery::LinkHost this_process() {
    char name[256] = {};
    if (::gethostname(name, sizeof name - 1) != 0) std::strcpy(name, "unknown");
    const auto random = [](size_t bytes) {
        std::string text(bytes, '\0');
        for (size_t at = 0; at < bytes;) {
            const ssize_t got = ::getrandom(text.data() + at, bytes - at, 0);
            if (got < 0 && errno != EINTR)
                throw Error(std::string("rendezvous: no random bytes: ") + std::strerror(errno));
            if (got > 0) at += static_cast<size_t>(got);
        }
        return text;
    };
    return {name, ::getpid(), random, orrery::process_state};
}

}  // namespace tcp
