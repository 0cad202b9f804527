#pragma once
#include <functional>

#include "orrery/config.h"
#include "run/control/job.h"

namespace orrery {

/// The launchers that may have started this process, by [run] launcher and plugins.path: the tree's first, then by
/// name. "auto": all of them; "orrery": none. Their files are read and not opened. Throws Error for an unknown name.
Launchers launchers_by(Config& config);
/// The same where reading the configuration may throw, which is reported later: those of one without keys, then.
Launchers launchers_of(const std::function<Config()>& read);

}  // namespace orrery
