#pragma once
#include <cstdint>
#include <string>

#include "base/json_fwd.h"
#include "run/metrics/event_file.h"

namespace orrery {

/// The lines of metrics.jsonl that are about the step from which a run resumes.
struct KeptLines {
    std::string step;        ///< the line of the step as JSON; "": none
    std::string evaluation;  ///< the line of the step's last evaluation as JSON; "": none

    /// Writes both lines to an event file, replacing what event files in its folder have for this step and later ones.
    void tell_again(EventFile& events, int64_t step_number, double now) const;
};

/// Removes lines of steps after `last_step` and all but the last evaluation of each step; returns those of `last_step`.
KeptLines trim_lines(const std::string& path, int64_t last_step);

/// Appends an evaluation's line to metrics.jsonl and removes lines of earlier evaluations of the step.
void replace_evaluation(const std::string& path, int64_t step, const std::string& line);

/// Writes the means of an evaluation's line to an event file.
void tell_evaluation(EventFile& events, const Json& line);

}  // namespace orrery
