#pragma once
#include <functional>

#include "orrery/config.h"
#include "run/control/job.h"

namespace orrery {

/// Returns the launcher plugins that run.launcher and plugins.path select, built-in ones first, then by name; "auto"
/// selects all, "orrery" none. Reads facts in plugin files without loading them. Throws Error for an unknown name.
Launchers launchers_by(Config& config);
/// Returns launchers_by() of the configuration that `read` returns. If `read` throws, which the command reports later,
/// uses an empty configuration.
Launchers launchers_of(const std::function<Config()>& read);

/// Prints a warning if this command, in a job of several nodes, starts ranks on this node only.
void tell_nodes_left_out(Config& config);

}  // namespace orrery
