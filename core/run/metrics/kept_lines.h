#pragma once
#include <cstdint>
#include <string>

#include "base/json_fwd.h"
#include "run/metrics/event_file.h"

namespace orrery {

/// The lines of metrics.jsonl about the step that a run resumes from.
struct KeptLines {
    std::string step;        ///< the step's line, JSON; "": none
    std::string evaluation;  ///< the step's last evaluation; "": none

    /// Writes both lines to an event file, replacing what its folder has for this step and later ones.
    void tell_again(EventFile& events, int64_t step_number, double now) const;
};

/// Drops the lines of steps after `last_step`, which will run again, and all but the last evaluation of each step.
KeptLines trim_lines(const std::string& path, int64_t last_step);

/// Appends an evaluation's line to metrics.jsonl and removes the step's earlier evaluations.
void replace_evaluation(const std::string& path, int64_t step, const std::string& line);

/// Writes an evaluation's line as scalars of one event.
void tell_evaluation(EventFile& events, const Json& line);

}  // namespace orrery
