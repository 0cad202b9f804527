#pragma once
#include <functional>

#include "orrery/config.h"
#include "run/control/job.h"

namespace orrery {

/// The launcher plugins to ask, by [run] launcher and plugins.path: built-in ones first, then by name. "auto": all;
/// "orrery": none. Reads the facts in their files and opens none. Throws Error for an unknown name.
Launchers launchers_by(Config& config);
/// The same; if `read` throws, as for an empty configuration: the command reports that error later.
Launchers launchers_of(const std::function<Config()>& read);

}  // namespace orrery
