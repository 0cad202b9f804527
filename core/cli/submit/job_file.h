#pragma once
#include <optional>
#include <string>

namespace orrery {

/// job.json in a run's folder: the engine that has the run's job, and the engine's name of it.
struct JobFile {
    std::string engine, name;
    std::string submitted = {};  ///< time in UTC when `orrery submit` handed it over; "": it did not
    bool ended = false;          ///< its first process has exited with 0: all is done
    std::string start = {};      ///< tells it from other jobs of this name; "": unknown

    bool operator==(const JobFile&) const = default;
};

/// Returns the job in a run's folder; nullopt if there is none. Throws Error for a damaged file.
std::optional<JobFile> read_job_file(const std::string& folder);
void write_job_file(const std::string& folder, const JobFile& job);

}  // namespace orrery
