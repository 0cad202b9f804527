#include "reach.h"

#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <vector>

namespace orrery::ucx {
namespace {

/// The network interface with this address; "" when there is none.
std::string interface_of(const std::string& address) {
    ifaddrs* all = nullptr;
    if (::getifaddrs(&all) != 0) return "";
    const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> keep(all, ::freeifaddrs);
    for (const ifaddrs* one = all; one; one = one->ifa_next) {
        if (!one->ifa_addr) continue;
        const bool v6 = one->ifa_addr->sa_family == AF_INET6;
        if (!v6 && one->ifa_addr->sa_family != AF_INET) continue;
        char text[NI_MAXHOST] = {};
        const socklen_t size = v6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
        if (::getnameinfo(one->ifa_addr, size, text, sizeof text, nullptr, 0, NI_NUMERICHOST) == 0 && address == text)
            return one->ifa_name;
    }
    return "";
}

/// The RDMA ports by UCX's names, "mlx5_0:1".
std::vector<std::string> rdma_ports() {
    std::vector<std::string> names;
    std::error_code none;
    for (const auto& device : std::filesystem::directory_iterator("/sys/class/infiniband", none))
        for (const auto& port : std::filesystem::directory_iterator(device.path() / "ports", none))
            names.push_back(device.path().filename().string() + ":" + port.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
}

}  // namespace

Reach Reach::narrowed(bool local, const std::function<std::string()>& address) const {
    Reach reach = *this;
    const bool shares_memory = local && named_transports().empty();
    if (shares_memory) reach.transports = "sm,self";
    if (shares_memory || !named_devices().empty()) return reach;
    reach.devices = interface_of(address());
    if (reach.devices.empty()) return reach;
    for (const std::string& port : rdma_ports()) reach.devices += "," + port;
    return reach;
}

bool Reach::over_tcp(bool same_host) const {
    const std::vector<std::string> shared_memory{"sm", "shm", "posix", "sysv", "cma", "knem", "xpmem"};
    const auto names = [](const std::string& list, const std::string& name) {
        return ("," + list + ",").find("," + name + ",") != std::string::npos;
    };
    const std::string transports = named_transports(), devices = named_devices();
    const auto named = [&](const std::string& name) { return names(transports, name); };
    const bool all = transports.empty() || named("all") || transports.starts_with("^");
    const bool any_device = devices.empty() || names(devices, "all");
    if (same_host && (all || std::ranges::any_of(shared_memory, named))) return false;
    // Of UCX's transports only TCP works without an RDMA port.
    const std::vector<std::string> ports = rdma_ports();
    return transports == "tcp" || transports == "tcp,self" || transports == "self,tcp" ||
           std::ranges::none_of(ports, [&](const std::string& port) { return any_device || names(devices, port); });
}

std::string Reach::named_transports() const {
    const char* const variable = std::getenv("UCX_TLS");
    return transports.empty() && variable ? variable : transports;
}

std::string Reach::named_devices() const {
    const char* const variable = std::getenv("UCX_NET_DEVICES");
    return devices.empty() && variable ? variable : devices;
}

std::string Reach::text() const {
    const std::string transports = named_transports(), devices = named_devices();
    return "over " + (transports.empty() ? "all of UCX's transports" : transports) +
           (devices.empty() ? "" : " on " + devices);
}

Place Place::here(const std::string& reached, std::string address) {
    std::string boot;
    std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
    struct stat pids {
    }, memory{};
    ::stat("/proc/self/ns/pid", &pids);
    ::stat("/dev/shm", &memory);
    const std::string host = boot + "/" + std::to_string(pids.st_ino) + "/" + std::to_string(memory.st_dev);
    char name[256] = {};
    ::gethostname(name, sizeof name - 1);
    return {host, ::getpid(), std::string("host ") + name + (reached.empty() ? "" : " at " + reached),
            std::move(address)};
}

std::string Place::text() const { return host + "\n" + std::to_string(pid) + "\n" + name + "\n" + address; }

Place Place::parse(const std::string& text) {
    const size_t first = text.find('\n'), second = text.find('\n', first + 1), third = text.find('\n', second + 1);
    return {text.substr(0, first), std::stoll(text.substr(first + 1, second - first - 1)),
            text.substr(second + 1, third - second - 1), text.substr(third + 1)};
}

}  // namespace orrery::ucx
