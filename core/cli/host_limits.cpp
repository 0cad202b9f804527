#include "cli/host_limits.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <vector>

#include "base/control_groups.h"
#include "base/processors.h"
#include "base/text.h"
#include "base/topology.h"

namespace orrery {
namespace {

/// Returns the quota, "the CPU quota in FILE allows 2.5 of 4 processors ...", if it is below `processors`.
std::string quota_text(size_t processors) {
    const auto& quota = own_groups().processors();
    if (!quota || quota->amount >= static_cast<double>(processors)) return "";
    return fmt::format("the CPU quota in {} allows {:.3g} of {}: {}", quota->file, quota->amount,
                       plural(static_cast<int64_t>(processors), "processor"),
                       quota->amount < 2 ? "each rank has one thread by default"
                                         : fmt::format("ranks share {} threads by default", usable_processors())) +
           (quota->amount < 1 ? ", which the kernel throttles" : "");
}

}  // namespace

std::string host_limits_text(int64_t needed_bytes) {
    std::vector<std::string> parts;
    const std::vector<int> allowed = allowed_processors();
    const auto online = ::sysconf(_SC_NPROCESSORS_ONLN);
    const std::string quota = quota_text(allowed.size());
    if (std::ssize(allowed) < online || !quota.empty()) {
        const Topology host(allowed);
        parts.push_back(fmt::format("{} of {} ({}, {})", allowed.size(), plural(online, "processor"),
                                    plural(host.sockets(), "socket"), plural(host.cores(), "core")));
    }
    if (!quota.empty()) parts.push_back(quota);
    const int64_t all = ::sysconf(_SC_PHYS_PAGES) * ::sysconf(_SC_PAGESIZE), usable = usable_memory();
    if (usable < all)
        parts.push_back(fmt::format(
            "{} of {} by the memory limit {}{}", bytes_text(usable), bytes_text(all), own_groups().memory()->file,
            needed_bytes > usable ? fmt::format(", too little for its ranks: {}", bytes_text(needed_bytes)) : ""));
    if (const auto& unseen = own_groups().unseen(); !unseen.empty())
        parts.push_back(fmt::format("limits of its control groups are not known, since they are not mounted: {}",
                                    join(unseen, ", ")));
    return parts.empty() ? "" : "this host: " + join(parts, "; ");
}

void tell_quota() {
    if (const std::string text = quota_text(allowed_processors().size()); !text.empty())
        std::fprintf(stderr, "orrery: %s\n", text.c_str());
}

}  // namespace orrery
