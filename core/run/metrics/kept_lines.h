#pragma once
#include <cstdint>
#include <string>

#include "base/json_fwd.h"
#include "run/metrics/event_file.h"

namespace orrery {

/// What metrics.jsonl says of the step that a run goes on from.
struct KeptLines {
    std::string step;        ///< its line, JSON; "": none
    std::string evaluation;  ///< the newest one after it; "": none

    /// The same for event files, instead of all that they have of this step and later.
    void tell_again(EventFile& events, int64_t step_number, double now) const;
};

/// Keeps the lines up to a step, of each step's evaluations the newest; later ones belong to work that was lost.
KeptLines trim_lines(const std::string& path, int64_t last_step);

/// Puts this line at the end, and takes what there is of this step's evaluations out.
void replace_evaluation(const std::string& path, int64_t step, const std::string& line);

/// A line of an evaluation as scalars of one event.
void tell_evaluation(EventFile& events, const Json& line);

}  // namespace orrery
