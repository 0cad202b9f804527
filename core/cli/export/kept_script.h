#pragma once
#include <string>

#include "run/export/published_record.h"

namespace orrery {

/// The record of a run's model from the script and configuration saved in its folder, for checkpoints that lack the
/// record. Runs the script without compiling. Throws the script's errors.
PublishedRecord record_of_kept_script(const std::string& run);

}  // namespace orrery
