#pragma once
#include <string>

#include "cli/submit/job_file.h"
#include "orrery/config.h"

namespace orrery {

/// Writes job.json in a run's folder if an engine started the job in which this process runs; of several engines the
/// one that job.json names already, else the first by name. A failure is only reported, since the run needs no such
/// file. Returns that job; empty names if there is none.
JobFile note_own_job(Config& config, const std::string& folder);
/// Records in job.json that `own` has done all its steps, unless the file has another job.
void note_own_end(const std::string& folder, const JobFile& own);

}  // namespace orrery
