#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include "base/json_fwd.h"

namespace orrery {

/// Where the time of a job went, in seconds.
struct Goodput {
    double starts = 0;     ///< of the first generation, until its first step
    double restore = 0;    ///< the same of the others: start, meeting, loading
    double repeated = 0;   ///< steps that an earlier generation had finished
    double detection = 0;  ///< from the last finished step until the last rank of a failed generation was reaped
    double waiting = 0;    ///< for nodes, and between restarts
    double steps = 0;      ///< all else: new steps, with their saves and evaluations

    double all() const { return starts + restore + repeated + detection + waiting + steps; }
    double share() const { return all() > 0 ? steps / all() : 0; }
    Json json() const;
    /// "goodput 87.3 %: ..."
    std::string text(int64_t restarts) const;
};

/// Seconds of a host's monotonic clock of one generation, 0: it did not come to that.
struct GenerationTimes {
    double started = 0, began = 0, repeated = 0, last = 0, ended = 0;
    bool failed = false;
};
/// Adds a generation's time; `first`: of the job.
void add(Goodput& goodput, const GenerationTimes& times, bool first);

/// events.jsonl of a run's folder: what a supervisor has seen and done, a line each, appended by a thread of its own: a
/// disk that does not answer must not hold who watches for that. One writer. What one that was killed has left of a
/// line is cut off.
class EventLog {
public:
    /// "" : none is written.
    explicit EventLog(const std::string& folder);
    /// Waits until all lines are written, 2 s at most: then those are lost, and it says so.
    ~EventLog();
    EventLog(const EventLog&) = delete;

    /// One line: time, generation, event and what else there is to say of it. Said once on stderr where it cannot be
    /// written: a full disk ends no job.
    void tell(int64_t generation, const std::string& event, const Json& more);

private:
    class Writer;
    std::shared_ptr<Writer> writer_;  // nullptr: none is written; one that a disk holds outlives this
    std::thread thread_;
};

}  // namespace orrery
