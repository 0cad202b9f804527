#include "base/control_groups.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "base/mounts.h"
#include "base/text.h"

namespace orrery {
namespace {

// Above memory.high processes are stopped again and again, since what they allocated cannot be dropped.
constexpr std::array memory_limits = {"/memory.max", "/memory.limit_in_bytes", "/memory.high"};
constexpr std::array hard_limits = {memory_limits[0], memory_limits[1]};
constexpr double unlimited = 0x1p62;  // bytes; the kernel shows a v1 group without limit as nearly 2^63

std::optional<double> number(std::string_view text) {
    int64_t value = 0;
    const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (fault != std::errc()) return std::nullopt;  // "max", or no such file
    return static_cast<double>(value);
}

/// Returns the part of a group's path below the group that a mount shows; nullopt if the mount does not show the group.
/// In a namespace, both are relative to its root, and groups outside begin with "..".
std::optional<std::string> below(const std::string& path, const std::string& shown) {
    std::string rest = path;
    if (shown != "/") {
        if (!path.starts_with(shown)) return std::nullopt;
        rest = path.substr(shown.size());
        if (!rest.empty() && rest.front() != '/') return std::nullopt;
    }
    if (rest == "/..") return std::nullopt;
    return rest.starts_with("/../") ? std::nullopt : std::optional(rest == "/" ? "" : rest);
}

void keep_smaller(std::optional<ControlGroups::Limit>& limit, double amount, const std::string& file) {
    if (!limit || amount < limit->amount) limit = {amount, file};
}

}  // namespace

std::string ControlGroups::text(const std::string& file) const {
    std::ifstream in(root_ + file);
    return {std::istreambuf_iterator<char>(in), {}};
}

ControlGroups::ControlGroups(std::string root) : root_(std::move(root)) {
    const std::string mounts = text("/proc/self/mountinfo");
    for (const std::string& line : split(text("/proc/self/cgroup"), '\n')) {  // "4:cpu,cpuacct:/a/b", v2: "0::/a/b"
        const size_t first = line.find(':'), second = line.find(':', first + 1);
        if (first == std::string::npos || second == std::string::npos) continue;
        const std::string controllers = line.substr(first + 1, second - first - 1), path = line.substr(second + 1);
        const std::vector<std::string> names = split(controllers, ',');
        const bool unified = controllers.empty();
        const auto has = [&](std::string_view name) { return unified || std::ranges::count(names, name) > 0; };
        if (has("cpu")) read_all("cpu", path, unified, mounts, &ControlGroups::read_quota);
        if (has("memory")) read_all("memory", path, unified, mounts, &ControlGroups::read_memory_limit);
        if (has("cpuset")) read_all("cpuset", path, unified, mounts, &ControlGroups::read_cpuset);
    }
}

void ControlGroups::read_all(const std::string& controller, const std::string& path, bool unified,
                             const std::string& mounts, Read read) {
    for (const std::string& line : split(mounts, '\n')) {
        const auto mount = mount_in(line);
        if (!mount || mount->type != (unified ? "cgroup2" : "cgroup")) continue;
        if (!unified && std::ranges::count(split(mount->system_options, ','), controller) == 0) continue;
        const auto rest = below(path, mount->root);
        std::error_code ignored;
        if (!rest || !std::filesystem::is_directory(root_ + mount->point + *rest, ignored)) continue;
        for (Group group{mount->point + *rest, unified};;
             group.folder.resize(std::max(mount->point.size(), group.folder.rfind('/')))) {
            (this->*read)(group);
            if (group.folder.size() <= mount->point.size()) return;
        }
    }
    if (path != "/" && controller != "cpuset") unseen_.push_back(controller + " " + path);
}

void ControlGroups::read_quota(const Group& group) {
    const std::string file = group.folder + (group.unified ? "/cpu.max" : "/cpu.cfs_quota_us");
    std::istringstream words(text(file));  // v2: "50000 100000", the quota and its period in us
    std::string quota_us, period_us;
    words >> quota_us >> period_us;
    if (!group.unified) period_us = text(group.folder + "/cpu.cfs_period_us");
    const auto quota = number(quota_us), period = number(period_us);
    if (quota && period && *quota > 0 && *period > 0) keep_smaller(processors_, *quota / *period, file);
}

void ControlGroups::read_memory_limit(const Group& group) {
    bool limited = false;
    for (const char* name : memory_limits) {
        const auto limit = number(text(group.folder + name));
        if (!limit || *limit >= unlimited) continue;
        keep_smaller(memory_, *limit, group.folder + name);
        limited = true;
    }
    if (limited) memory_groups_.push_back(group);
}

/// The first group with a list, from the own one upwards, counts: "0-3,8".
void ControlGroups::read_cpuset(const Group& group) {
    if (cpuset_ > 0) return;
    std::string list = text(group.folder + (group.unified ? "/cpuset.cpus.effective" : "/cpuset.effective_cpus"));
    if (list.empty() && !group.unified) list = text(group.folder + "/cpuset.cpus");
    for (const std::string& part : split(std::string(trim(list)), ',')) {
        const auto first = number(part), last = number(part.substr(part.find('-') + 1));
        if (first && last) cpuset_ += static_cast<int64_t>(*last - *first) + 1;
    }
}

/// Bytes that the group may still swap out. `used`, `limit`: its memory. A v1 group limits memory and swap together.
double ControlGroups::free_swap(const Group& group, double used, double limit) const {
    double free = 0;
    std::string key;
    for (const std::string& line : split(text("/proc/meminfo"), '\n'))
        if (line.starts_with("SwapFree:")) std::istringstream(line) >> key >> free;
    free *= 1024;
    const auto may = number(text(group.folder + (group.unified ? "/memory.swap.max" : "/memory.memsw.limit_in_bytes")));
    const auto in =
        number(text(group.folder + (group.unified ? "/memory.swap.current" : "/memory.memsw.usage_in_bytes")));
    if (!in) return free;  // the group does not limit swap
    if (group.unified) return may ? std::clamp(*may - *in, 0.0, free) : free;
    return may && *may < unlimited ? std::clamp((*may - *in) - (limit - used), 0.0, free) : free;
}

std::optional<ControlGroups::Limit> ControlGroups::memory_left() const {
    std::optional<Limit> left;
    for (const Group& group : memory_groups_) {
        const auto used =
            number(text(group.folder + (group.unified ? "/memory.current" : "/memory.usage_in_bytes"))).value_or(0);
        double cached = 0;
        std::istringstream stat(text(group.folder + "/memory.stat"));
        const std::string total = group.unified ? "" : "total_";
        std::string key;
        for (double bytes = 0; stat >> key >> bytes;)
            if (key == total + "active_file" || key == total + "inactive_file" || key == "slab_reclaimable")
                cached += bytes;
        for (const char* name : hard_limits)
            if (const auto limit = number(text(group.folder + name)); limit && *limit < unlimited)
                keep_smaller(left,
                             std::max(0.0, *limit - std::max(0.0, used - cached)) + free_swap(group, used, *limit),
                             group.folder + name);
    }
    return left;
}

const ControlGroups& own_groups() {
    static const ControlGroups own;
    return own;
}

int64_t usable_memory() {
    const int64_t all = ::sysconf(_SC_PHYS_PAGES) * ::sysconf(_SC_PAGESIZE);
    const auto& limit = own_groups().memory();
    return limit ? std::min(all, static_cast<int64_t>(limit->amount)) : all;
}

}  // namespace orrery
