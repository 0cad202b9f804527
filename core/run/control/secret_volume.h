#pragma once
#include <sys/stat.h>

#include <string>

namespace orrery {

/// Whether the file at `path`, which had `info` when it was opened, is in the volume of a Kubernetes Secret: readable
/// by every user of this container, and by no user of the machine.
///
///     /etc/orrery                    mount point: all of a tmpfs, mounted read-only
///         token -> ..data/token
///         ..data -> ..2026_11_30
///         ..2026_11_30/token         the file
///
/// This process must have a mount namespace of its own. A tmpfs of the machine, such as /dev/shm or /tmp, is writable,
/// also where a container has it; a folder of one is not all of it; and its files are not in folders of such names.
bool is_in_secret_volume(const std::string& path, const struct stat& info);

}  // namespace orrery
