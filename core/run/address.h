#pragma once
#include <string>

namespace orrery {

/// The loopback address that a name stands for on this host, "127.0.1.1"; "" when it stands for another or for none.
std::string loopback_of(const std::string& host);

/// Throws Error when ranks of several hosts would meet at a loopback address, which no other host reaches.
/// `asked`: who named the host, "--rendezvous node0:29500".
void refuse_loopback(const std::string& host, const std::string& asked);

}  // namespace orrery
