#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace orrery {

/// Limits that the control groups (cgroup v1, v2 or both) of this process set: its own groups and those above them.
class ControlGroups {
public:
    struct Limit {
        double amount = 0;
        std::string file;  ///< the file that sets it: "/sys/fs/cgroup/cpu.max"
    };

    /// Reads /proc/self/cgroup, /proc/self/mountinfo and the groups' files, all in folder `root`.
    explicit ControlGroups(std::string root = "");

    /// The smallest CPU quota, in processors. A group above may share its quota with other processes.
    const std::optional<Limit>& processors() const { return processors_; }
    /// The smallest memory limit, in bytes; also memory.high, above which processes are slowed down.
    const std::optional<Limit>& memory() const { return memory_; }
    /// The smallest number of bytes that a limited group may still allocate before the kernel kills: memory.high does
    /// not count, the group's free swap does, and caches of files and names do not count as used, since the kernel
    /// drops them. nullopt: no limit.
    std::optional<Limit> memory_left() const;
    /// Number of processors that the cpuset of the own group allows; 0: not known.
    int64_t cpuset() const { return cpuset_; }
    /// Groups of this process that no mount shows, so that their limits are unknown: "cpu /a/b".
    const std::vector<std::string>& unseen() const { return unseen_; }

private:
    struct Group {
        std::string folder;
        bool unified = false;  ///< cgroup v2
    };
    using Read = void (ControlGroups::*)(const Group&);
    void read_all(const std::string& controller, const std::string& path, bool unified, const std::string& mounts,
                  Read read);
    void read_quota(const Group& group);
    void read_memory_limit(const Group& group);
    void read_cpuset(const Group& group);
    double free_swap(const Group& group, double used, double limit) const;
    std::string text(const std::string& file) const;

    std::string root_;
    std::optional<Limit> processors_, memory_;
    std::vector<Group> memory_groups_;
    int64_t cpuset_ = 0;
    std::vector<std::string> unseen_;
};

/// The control groups of this process as they were when it first asked.
const ControlGroups& own_groups();

/// Bytes of this host's memory that this process may use: all of it, or the limit of its control groups.
int64_t usable_memory();

}  // namespace orrery
