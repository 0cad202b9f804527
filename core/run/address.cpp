#include "run/address.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <sys/socket.h>

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

void refuse_loopback(const std::string& host, const std::string& asked) {
    const std::string address = loopback_of(host);
    if (address.empty()) return;
    throw Error(
        fmt::format("{}: {} is {} on this host, which no other host reaches\n"
                    "  /etc/hosts may map a host's own name to 127.0.1.1: give the host's address in the network "
                    "that all hosts share",
                    asked, host, address));
}

}  // namespace orrery
