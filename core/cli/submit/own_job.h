#pragma once
#include <string>

#include "orrery/config.h"

namespace orrery {

/// Writes job.json in a run's folder if an engine started the job in which this process runs; of several engines the
/// one that job.json names already, else the first by name. A failure is only reported, since the run needs no such
/// file.
void note_own_job(Config& config, const std::string& folder);
/// Records in job.json, if there is one, that the job has done all its steps.
void note_own_end(const std::string& folder);

}  // namespace orrery
