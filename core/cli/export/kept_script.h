#pragma once
#include <string>

#include "run/export/published_record.h"

namespace orrery {

/// How the model of a run is published, by the script and the configuration that its folder keeps: for checkpoints that
/// do not say it themselves. Runs the script, compiles nothing. Throws what it throws.
PublishedRecord record_of_kept_script(const std::string& run);

}  // namespace orrery
