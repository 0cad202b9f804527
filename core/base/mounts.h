#pragma once
#include <optional>
#include <string>

namespace orrery {

/// A line of /proc/self/mountinfo: "36 35 0:98 /root /point ro,noatime master:1 - tmpfs tmpfs rw,size=64k".
struct Mount {
    std::string id;
    std::string root;            ///< folder of the file system that the mount shows
    std::string point;           ///< where it shows it
    std::string options;         ///< of the mount
    std::string type;            ///< of the file system
    std::string system_options;  ///< of the file system
};

/// Returns the mount that a line describes, its paths without escapes; nullopt for another line.
std::optional<Mount> mount_in(const std::string& line);

}  // namespace orrery
