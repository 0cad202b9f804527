#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace orrery {

/// The loopback address that a name stands for on this host, "127.0.1.1"; "" when it stands for another or for none.
std::string loopback_of(const std::string& host);

/// A host and a port as one text, "n1:29500" or "[fe80::1]:29500", and back; nullopt when it is none.
struct Place {
    std::string host;
    int port = 0;
};
std::string place_text(const std::string& host, int port);
std::optional<Place> parse_place(std::string_view text);

/// This host's own name.
std::string host_name();

/// Throws Error when ranks of several hosts would meet at a loopback address, which no other host reaches.
/// `asked`: who named the host, "--rendezvous node0:29500".
void refuse_loopback(const std::string& host, const std::string& asked);

}  // namespace orrery
