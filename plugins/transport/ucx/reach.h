#pragma once
#include <cstdint>
#include <functional>
#include <string>

/// Where the members of a group are, and over which UCX transports they may connect.
namespace orrery::ucx {

/// Which of UCX's own transports and devices may be used; "" leaves the choice to UCX, which listens on every
/// interface.
struct Reach {
    std::string transports;  ///< "posix,cma,self", "tcp"
    std::string devices;     ///< "eth0,mlx5_0:1"

    /// This one, with defaults for what it leaves open and UCX's variables do not set: shared memory only when all
    /// members are `local`; else the network interface with this address, and all RDMA ports, which listen to no IP
    /// address.
    Reach narrowed(bool local, const std::function<std::string()>& address) const;
    /// Whether UCX can reach a member by TCP alone. `same_host`: the member may share memory with this one.
    bool over_tcp(bool same_host) const;
    /// "over posix,cma,self", for messages.
    std::string text() const;

private:
    std::string named_transports() const;  ///< those of the configuration or UCX_TLS; "" if all may be used
    std::string named_devices() const;     ///< those of the configuration or UCX_NET_DEVICES; "" if all may be used
};

/// Where a member is, as it reports to the others.
struct Place {
    std::string host;  ///< the same for processes of one host and one container, with one /dev/shm
    int64_t pid = 0;
    std::string name;     ///< for messages: "host n2 at 10.0.0.2"
    std::string address;  ///< UCX's, binary

    /// `reached`: the IP address at which others reach it, "" when unknown.
    static Place here(const std::string& reached, std::string address);
    std::string text() const;
    static Place parse(const std::string& text);
};

}  // namespace orrery::ucx
