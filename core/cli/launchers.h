#pragma once
#include <functional>

#include "orrery/config.h"
#include "run/control/job.h"

namespace orrery {

/// The launcher plugins to ask, by [run] launcher and plugins.path: built-in ones first, then by name. "auto": all;
/// "orrery": none. Reads the facts in their files without loading them. Throws Error for an unknown name.
Launchers launchers_by(Config& config);
/// Like launchers_by() for the configuration that `read` returns. If `read` throws, uses an empty configuration, since
/// the command reports that error later.
Launchers launchers_of(const std::function<Config()>& read);

/// Prints a warning if this command, in a job of several nodes, starts ranks on this node only.
void tell_nodes_left_out(Config& config);

}  // namespace orrery
