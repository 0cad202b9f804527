#include "run/control/address.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <charconv>
#include <functional>
#include <memory>

#include "orrery/error.h"

namespace orrery {
namespace {

std::string text_of(const sockaddr* address) {
    char text[INET6_ADDRSTRLEN] = {};
    const void* bytes = address->sa_family == AF_INET
                            ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in*>(address)->sin_addr)
                            : &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
    return inet_ntop(address->sa_family, bytes, text, sizeof text);
}

/// The address from which this host would send to `far`, an address that no host has (RFC 5737, 3849); "": there is no
/// route. Connecting a datagram socket sends nothing.
std::string address_towards(const char* far) {
    addrinfo hints{}, *found = nullptr;
    hints.ai_socktype = SOCK_DGRAM;
    hints.ai_flags = AI_NUMERICHOST;
    if (getaddrinfo(far, "9", &hints, &found) != 0) return "";
    const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> keep(found, freeaddrinfo);
    const int file = ::socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (file < 0) return "";
    sockaddr_storage own{};
    socklen_t bytes = sizeof own;
    const bool routed = ::connect(file, found->ai_addr, found->ai_addrlen) == 0 &&
                        ::getsockname(file, reinterpret_cast<sockaddr*>(&own), &bytes) == 0;
    ::close(file);
    return routed ? text_of(reinterpret_cast<sockaddr*>(&own)) : "";
}

/// The address of family `family` of the first interface that is up; "" if there is none.
std::string first_address(int family) {
    ifaddrs* all = nullptr;
    if (::getifaddrs(&all) != 0) return "";
    const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> keep(all, freeifaddrs);
    for (const ifaddrs* one = all; one; one = one->ifa_next) {
        if (!one->ifa_addr || one->ifa_addr->sa_family != family) continue;
        if ((one->ifa_flags & IFF_UP) == 0 || (one->ifa_flags & IFF_LOOPBACK) != 0) continue;
        const bool of_link = family == AF_INET6 &&
                             IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(one->ifa_addr)->sin6_addr);
        if (!of_link) return text_of(one->ifa_addr);
    }
    return "";
}

}  // namespace

std::string own_address() {
    for (const char* far : {"192.0.2.1", "2001:db8::1"})
        if (const std::string own = address_towards(far); !own.empty() && loopback_of(own).empty()) return own;
    for (const int family : {AF_INET, AF_INET6})
        if (const std::string own = first_address(family); !own.empty()) return own;
    throw Error(
        "this host has no network interface that is up, apart from loopback\n  set MASTER_ADDR to an address of "
        "rank 0's host that every host reaches");
}

std::string loopback_of(const std::string& host) {
    addrinfo hints{}, *found = nullptr;
    hints.ai_socktype = SOCK_STREAM;
    if (getaddrinfo(host.c_str(), nullptr, &hints, &found) != 0) return "";
    const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> keep(found, freeaddrinfo);
    char text[INET6_ADDRSTRLEN] = {};
    if (found->ai_family == AF_INET) {
        const in_addr& address = reinterpret_cast<const sockaddr_in*>(found->ai_addr)->sin_addr;
        if (ntohl(address.s_addr) >> 24 != 127) return "";
        return inet_ntop(AF_INET, &address, text, sizeof text);
    }
    if (found->ai_family != AF_INET6) return "";
    const in6_addr& address = reinterpret_cast<const sockaddr_in6*>(found->ai_addr)->sin6_addr;
    return IN6_IS_ADDR_LOOPBACK(&address) ? inet_ntop(AF_INET6, &address, text, sizeof text) : "";
}

int Ports::of(const std::string& text) const {
    return first + static_cast<int>(std::hash<std::string>{}(text) % static_cast<size_t>(last - first + 1));
}

std::string place_text(const std::string& host, int port) {
    const bool v6 = host.find(':') != std::string::npos;
    return v6 ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

std::optional<HostPort> parse_place(std::string_view text) {
    HostPort place;
    const size_t colon = text.rfind(':');
    if (colon == std::string_view::npos) return std::nullopt;
    std::string_view host = text.substr(0, colon), port = text.substr(colon + 1);
    const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
    if (bracketed) host = host.substr(1, host.size() - 2);
    if (host.empty() || (!bracketed && host.find_first_of("[]:") != std::string_view::npos)) return std::nullopt;
    const auto [end, fault] = std::from_chars(port.data(), port.data() + port.size(), place.port);
    if (fault != std::errc() || end != port.data() + port.size() || place.port < 0 || place.port > 65535)
        return std::nullopt;
    place.host = host;
    return place;
}

std::string host_name() {
    char name[65] = {};
    ::gethostname(name, sizeof name - 1);
    return name;
}

void refuse_loopback(const std::string& host, const std::string& asked) {
    const std::string address = loopback_of(host);
    if (address.empty()) return;
    throw Error(
        fmt::format("{}: {} is {} on this host, a loopback address that no other host reaches\n"
                    "  /etc/hosts may map a host's own name to 127.0.1.1: use the host's address in the network "
                    "that all hosts share",
                    asked, host, address));
}

}  // namespace orrery
