#pragma once
#include <string>

#include "run/export/published_record.h"

namespace orrery {

/// Returns how a run's model is published, for checkpoints that do not record it. To find out, runs the script saved in
/// the run's folder with its configuration, without compiling. Throws the script's errors.
PublishedRecord record_of_kept_script(const std::string& run);

}  // namespace orrery
