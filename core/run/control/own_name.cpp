#include "run/control/own_name.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <thread>

#include "run/control/stop_request.h"

namespace orrery {
namespace {

/// Whether a socket of this host can have the first address of `host`.
bool is_own(const std::string& host) {
    addrinfo hints{}, *found = nullptr;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_PASSIVE;
    if (getaddrinfo(host.c_str(), "0", &hints, &found) != 0) return false;
    const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> keep(found, freeaddrinfo);
    const int file = ::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (file < 0) return false;
    const bool own = ::bind(file, found->ai_addr, found->ai_addrlen) == 0;
    ::close(file);
    return own;
}

bool is_address(const std::string& host) {
    addrinfo hints{}, *found = nullptr;
    hints.ai_flags = AI_NUMERICHOST;
    if (getaddrinfo(host.c_str(), nullptr, &hints, &found) != 0) return false;
    freeaddrinfo(found);
    return true;
}

}  // namespace

bool await_own_name(const std::string& host, std::chrono::milliseconds limit) {
    using namespace std::chrono;
    const auto begin = steady_clock::now();
    for (bool told = false; !is_own(host); told = true) {
        if (is_address(host) || stop_signal() != 0 || steady_clock::now() - begin > limit) return false;
        if (!told)
            std::fprintf(stderr, "orrery: %s is not an address of this host yet: waiting for it, up to %lld s\n",
                         host.c_str(), static_cast<long long>(duration_cast<seconds>(limit).count()));
        std::this_thread::sleep_for(milliseconds(200));
    }
    return true;
}

}  // namespace orrery
