#pragma once
#include <chrono>
#include <cstdint>
#include <string>

#include "orrery/rendezvous.h"

namespace tcp {

using Clock = std::chrono::steady_clock;

/// A file descriptor that closes itself.
class Fd {
public:
    Fd() = default;
    explicit Fd(int fd) : fd_(fd) {}
    Fd(Fd&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
    Fd& operator=(Fd&& other) noexcept;
    ~Fd();
    int get() const { return fd_; }
    explicit operator bool() const { return fd_ >= 0; }

private:
    int fd_ = -1;
};

/// The ports that may be listened at where port 0 asks for a free one; zeros: any.
struct Ports {
    int first = 0, last = 0;
};
/// A non-blocking listener. Throws Error naming host and port when the port is in use or cannot be bound, or when no
/// port of the range is free.
Fd listen_on(const std::string& host, int port, const Ports& free = {});
int port_of(int socket);
/// Accepts the next connection and sets `from` to its numeric address; without one, leaves `from` unchanged. The
/// connection ends when sent bytes are not acknowledged for `silence`, as in try_connect.
Fd accept_one(int listener, std::string& from, std::chrono::milliseconds silence);
/// Opens a non-blocking connection, or returns none and sets `why`.
Fd try_connect(const std::string& host, int port, Clock::time_point deadline, std::chrono::milliseconds silence,
               std::string& why);
/// The address of this end.
std::string local_address(int socket);
/// "n1:29500", "[fe80::1]:29500".
std::string place_text(const std::string& host, int port);
/// Both return the number of bytes transferred, 0 when none can be now, and -1 when the connection has ended.
int64_t send_some(int socket, const char* data, size_t bytes);
int64_t receive_some(int socket, char* data, size_t bytes);
/// An eventfd with which threads wake each other in poll.
Fd make_bell();
void ring(const Fd& bell);
void silence(const Fd& bell);
int left_ms(Clock::time_point deadline);
orrery::LinkTime link_time(Clock::time_point time);
/// This process, for the objects without I/O.
orrery::LinkHost this_process();

}  // namespace tcp
