#include "run/control/own_name.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <thread>

#include "run/control/stop_request.h"

namespace orrery {
namespace {

using Found = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

/// Returns the addresses of a name; none if it does not resolve.
Found resolved(const std::string& host, int flags) {
    addrinfo hints{}, *found = nullptr;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = flags;
    if (getaddrinfo(host.c_str(), "0", &hints, &found) != 0) found = nullptr;
    return {found, freeaddrinfo};
}

/// Whether a socket of this host can have one of the addresses.
bool is_own(const addrinfo* address) {
    for (; address; address = address->ai_next) {
        const int file = ::socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (file < 0) continue;
        const bool own = ::bind(file, address->ai_addr, address->ai_addrlen) == 0;
        ::close(file);
        if (own) return true;
    }
    return false;
}

}  // namespace

bool await_own_name(const std::string& host, bool moves, std::chrono::milliseconds limit,
                    const std::function<void()>& waits) {
    using namespace std::chrono;
    const auto begin = steady_clock::now();
    const bool is_address = resolved(host, AI_NUMERICHOST) != nullptr;
    for (bool first = true;; first = false) {
        const Found found = resolved(host, AI_PASSIVE);
        if (is_own(found.get())) return true;
        if (is_address || (found && !moves)) return false;
        if (first) waits();
        if (stop_signal() != 0 || steady_clock::now() - begin > limit) return false;
        std::this_thread::sleep_for(milliseconds(200));
    }
}

}  // namespace orrery
