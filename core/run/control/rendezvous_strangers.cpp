#include "run/control/rendezvous_strangers.h"

#include <fmt/format.h>
#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "orrery/error.h"
#include "run/control/address.h"

namespace orrery::wire {
namespace {

Fd listen_on(const std::string& host, int port) {
    addrinfo hints{}, *found = nullptr;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_PASSIVE;
    const std::string service = std::to_string(port);
    if (const int rc = getaddrinfo(host.empty() ? nullptr : host.c_str(), service.c_str(), &hints, &found))
        throw Error(fmt::format("rendezvous: cannot resolve host '{}': {}", host, gai_strerror(rc)));
    const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> keep(found, freeaddrinfo);
    Fd fd(::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const int on = 1;
    setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    // A long queue: ranks wait in it beside a flood of strangers.
    if (::bind(fd.get(), found->ai_addr, found->ai_addrlen) == 0 && ::listen(fd.get(), SOMAXCONN) == 0) return fd;
    const int reason = errno;
    if (reason == EADDRINUSE)
        throw Error(
            fmt::format("rendezvous: port {} of {} is in use by another process; choose another, or port 0 "
                        "for any free one",
                        port, host));
    throw Error(fmt::format("rendezvous: cannot listen on {}: {}", place_text(host, port), std::strerror(reason)));
}

std::string address_of(const sockaddr_storage& address, socklen_t size) {
    char text[NI_MAXHOST] = {};
    if (getnameinfo(reinterpret_cast<const sockaddr*>(&address), size, text, sizeof text, nullptr, 0, NI_NUMERICHOST))
        return "an unknown address";
    return text;
}

}  // namespace

Strangers::Strangers(const std::string& host, int port) : listener_(listen_on(host, port)) {}

int Strangers::port() const {
    sockaddr_storage address{};
    socklen_t size = sizeof address;
    getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &size);
    char service[16] = {};
    getnameinfo(reinterpret_cast<sockaddr*>(&address), size, nullptr, 0, service, sizeof service, NI_NUMERICSERV);
    return std::stoi(service);
}

void Strangers::add_to(std::vector<pollfd>& fds) const {
    // While it is full the others wait in the kernel's queue.
    fds.push_back({listener_.get(), static_cast<short>(full() ? 0 : POLLIN), 0});
    for (const Stranger& stranger : open_) fds.push_back({stranger.socket.get(), POLLIN, 0});
}

std::chrono::milliseconds Strangers::until_due(std::chrono::milliseconds limit) const {
    return full() ? std::min(limit, least) : limit;
}

std::vector<Candidate> Strangers::serve(const pollfd* fds) {
    std::vector<Candidate> complete;
    const auto now = Clock::now();
    const pollfd* at = fds;
    for (Stranger& stranger : open_) {
        ++at;
        if (at->revents) receive(stranger, complete);
        if (now - stranger.since > longest) stranger.closed = true;
    }
    open_.remove_if([](const Stranger& stranger) { return stranger.closed; });
    if (fds->revents) accept_some();
    return complete;
}

void Strangers::receive(Stranger& stranger, std::vector<Candidate>& complete) {
    char buffer[sizeof(Hello)];
    const ssize_t n = ::recv(stranger.socket.get(), buffer, sizeof(Hello) - stranger.in.size(), 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n > 0) stranger.in.append(buffer, static_cast<size_t>(n));
    stranger.closed = n <= 0 || stranger.in.size() == sizeof(Hello);
    if (stranger.in.size() < sizeof(Hello)) return;
    Candidate candidate{std::move(stranger.socket), stranger.nonce, {}, std::move(stranger.from)};
    std::memcpy(&candidate.hello, stranger.in.data(), sizeof(Hello));
    complete.push_back(std::move(candidate));
}

/// At most as many as may be open, so that those who are here are looked at in between.
void Strangers::accept_some() {
    for (size_t i = 0; i < most && !full(); ++i) {
        sockaddr_storage address{};
        socklen_t size = sizeof address;
        Fd fd(::accept4(listener_.get(), reinterpret_cast<sockaddr*>(&address), &size, SOCK_CLOEXEC | SOCK_NONBLOCK));
        if (!fd) return;
        if (open_.size() >= most) open_.pop_front();
        tune(fd.get());
        Challenge challenge{};
        std::memcpy(challenge.magic, magic, 8);
        fill_random(challenge.nonce);
        // An empty socket's buffer holds it.
        if (::send(fd.get(), &challenge, sizeof challenge, MSG_NOSIGNAL) != sizeof challenge) continue;
        open_.push_back({std::move(fd), challenge.nonce, Clock::now(), {}, address_of(address, size)});
    }
}

void Refusals::count(const std::string& from) {
    ++all_;
    if (places_.size() < most_places || places_.count(from)) ++places_[from];
}

std::string Refusals::text() const {
    constexpr size_t shown = 8;
    if (all_ == 0) return "";
    std::vector<std::pair<int64_t, std::string>> places;
    for (const auto& [from, times] : places_) places.emplace_back(times, from);
    std::sort(places.rbegin(), places.rend());
    std::string list;
    for (size_t i = 0; i < std::min(places.size(), shown); ++i)
        list += fmt::format("{}{} from {}", i ? ", " : "", places[i].first, places[i].second);
    if (places.size() > shown) list += ", and others";
    return fmt::format("; {} connection{} with another token or job {} refused: {}", all_, all_ == 1 ? "" : "s",
                       all_ == 1 ? "was" : "were", list);
}

}  // namespace orrery::wire
