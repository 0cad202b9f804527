#include "run/control/address.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <charconv>
#include <memory>

#include "orrery/error.h"

namespace orrery {

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

std::string place_text(const std::string& host, int port) {
    const bool v6 = host.find(':') != std::string::npos;
    return v6 ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

std::optional<Place> parse_place(std::string_view text) {
    Place place;
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
