#pragma once
#include <memory>
#include <string>

#include "base/json_fwd.h"

namespace orrery {

/// run.json of a run's folder: what a start was, and why it ended; the starts before it under "before". One lives at a
/// time in a process, on rank 0.
class RunRecord {
public:
    /// `start`: what is known before the ranks meet. Written at once, with the time.
    RunRecord(const std::string& folder, const Json& start);
    ~RunRecord();
    RunRecord(const RunRecord&) = delete;

    /// What is known once they have met. Written at once.
    void add(const Json& more);

private:
    friend void end_run_record(const std::string& why, int exit_code);
    void write() const;

    const std::string path_;
    const std::unique_ptr<Json> record_;
};

/// Writes end and reason into the record that lives in this process, if any; from any thread. Once: what comes later is
/// not the reason.
void end_run_record(const std::string& why, int exit_code);

/// "2026-11-25T14:36:41Z"
std::string utc_text(double seconds_since_1970);

}  // namespace orrery
