#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include "base/json_fwd.h"

namespace orrery {

/// Seconds of a job's time, by how they were spent. A generation is one start of the job.
struct Goodput {
    double starts = 0;     ///< from the job's start until its first step begins
    double restore = 0;    ///< from each restart until its first step begins: start, joining, loading
    double repeated = 0;   ///< steps that an earlier generation had finished before
    double detection = 0;  ///< from the last finished step until the last rank of the failed generation was reaped
    double waiting = 0;    ///< waiting for nodes, and pauses before restarts
    double steps = 0;      ///< everything else: new steps with their saves and evaluations

    double all() const { return starts + restore + repeated + detection + waiting + steps; }
    double share() const { return all() > 0 ? steps / all() : 0; }
    Json json() const;
    std::string text(int64_t restarts) const;
};

/// Times of one generation (start of the job) on a host's monotonic clock in seconds; 0: not reached.
struct GenerationTimes {
    double started = 0, began = 0, repeated = 0, last = 0, ended = 0;
    bool failed = false;
};
/// Adds the times of a generation to `goodput`. `first`: it is the job's first generation.
void add(Goodput& goodput, const GenerationTimes& times, bool first);

/// Writes events.jsonl in a run's folder, a line for each thing that a supervisor observed or did. A separate thread
/// appends the lines, so that a hanging disk does not block supervision. Only one process may write. Removes an
/// incomplete line that a killed process left.
class EventLog {
public:
    /// Opens events.jsonl in `folder`; "": events are not written.
    explicit EventLog(const std::string& folder);
    /// Waits until all lines are written, for at most 2 s; lines not written by then are lost, which is reported.
    ~EventLog();
    EventLog(const EventLog&) = delete;

    /// Appends a line with time, generation, event and the fields of `more`. A write error is reported once on stderr
    /// and does not end the job.
    void tell(int64_t generation, const std::string& event, const Json& more);

private:
    class Writer;
    std::shared_ptr<Writer> writer_;  // nullptr without a file; outlives this object if a disk blocks it
    std::thread thread_;
};

}  // namespace orrery
