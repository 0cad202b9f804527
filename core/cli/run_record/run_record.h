#pragma once
#include <memory>
#include <string>

#include "base/json_fwd.h"

namespace orrery {

/// Writes run.json in a run's folder: what was started and why it ended, with earlier starts under "before". Rank 0
/// writes it; a process has at most one RunRecord at a time.
class RunRecord {
public:
    /// Writes a new start with the current time. `start`: what is known before the ranks join.
    RunRecord(const std::string& folder, const Json& start);
    ~RunRecord();
    RunRecord(const RunRecord&) = delete;

    /// Adds to the start what is known after the ranks have joined, and writes the file.
    void add(const Json& more);

private:
    friend void end_run_record(const std::string& why, int exit_code);
    void write() const;

    const std::string path_;
    const std::unique_ptr<Json> record_;
};

/// Adds end time and reason to the current run.json, if any. Any thread may call it; only the first call counts.
void end_run_record(const std::string& why, int exit_code);

/// A time in UTC as text: "2026-11-25T14:36:41Z".
std::string utc_text(double seconds_since_1970);

}  // namespace orrery
