#pragma once
#include <string>

#include "run/export/published_record.h"

namespace orrery {

/// Returns how a run's model is published, for checkpoints that do not record it: runs the script and configuration
/// saved in the run's folder, without compiling. Throws the script's errors.
PublishedRecord record_of_kept_script(const std::string& run);

}  // namespace orrery
