#pragma once
#include <memory>
#include <string>

#include "base/json_fwd.h"

namespace orrery {

/// run.json of a run's folder: what was started and why it ended; earlier starts are under "before". A process has at
/// most one at a time, on rank 0.
class RunRecord {
public:
    /// Records a start. `start`: what is known before the ranks join. Written at once, with the time.
    RunRecord(const std::string& folder, const Json& start);
    ~RunRecord();
    RunRecord(const RunRecord&) = delete;

    /// Adds what is known after the ranks have joined. Written at once.
    void add(const Json& more);

private:
    friend void end_run_record(const std::string& why, int exit_code);
    void write() const;

    const std::string path_;
    const std::unique_ptr<Json> record_;
};

/// Writes end time and reason into this process's record, if any. Callable from any thread; only the first call counts.
void end_run_record(const std::string& why, int exit_code);

/// A time in UTC as text: "2026-11-25T14:36:41Z".
std::string utc_text(double seconds_since_1970);

}  // namespace orrery
