#pragma once
#include <functional>
#include <string>

#include "orrery/config.h"

namespace orrery {

/// Writes job.json in a run's folder if an engine started the job in which this process runs; of several engines the
/// one that job.json names already, else the first by name. A failure is only reported, since the run needs no such
/// file.
void note_own_job(Config& config, const std::string& folder);
/// Records in job.json that the job has ended, if it is the one in which this process runs. `config` returns the
/// configuration.
void note_own_end(const std::function<Config()>& config, const std::string& folder);
/// Whether the job in which this process runs has ended, as job.json records, which is then printed: an engine with the
/// fact `start` starts each task again until it exits with 0, also when the others have done all that was to do.
bool own_job_ended(Config& config, const std::string& folder);

/// Calls `run` in the first task of a job and writes its exit code into the file that ORRERY_EXIT_FILE names, if it is
/// set: the exit code of what started the tasks may be that of any of them.
int with_exit_file(const std::function<int()>& run);

}  // namespace orrery
