#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace orrery {

/// Returns the first address of `host`, as this host resolves it, if it is a loopback one ("127.0.1.1"); otherwise "".
std::string loopback_of(const std::string& host);

/// A host and port, written "n1:29500" or "[fe80::1]:29500". parse_place returns nullopt for other texts.
struct HostPort {
    std::string host;
    int port = 0;
};
/// Ports from `first` to `last`, of which processes that do not communicate choose the same one by a text.
struct Ports {
    int first = 0, last = 0;
    int of(const std::string& text) const;
};
/// Ports where `run.ports` gives none.
constexpr Ports any_ports{29500, 37499};

std::string place_text(const std::string& host, int port);
std::optional<HostPort> parse_place(std::string_view text);

std::string host_name();

/// Returns this host's address for other hosts: that of the interface of the default route, without one that of the
/// first other interface that is up, never a loopback one. The host's name is not asked: /etc/hosts may map it to a
/// loopback address. Throws Error if there is none.
std::string own_address();

/// Throws Error if ranks of several hosts would meet at a loopback address, which other hosts cannot reach. `asked`:
/// the setting that names the host, "--rendezvous node0:29500".
void refuse_loopback(const std::string& host, const std::string& asked);

}  // namespace orrery
