#pragma once
#include <optional>
#include <string>
#include <vector>

#include "compile/program_set.h"

namespace orrery {

/// A result of the train step that the script declares, in addition to the standard columns of metrics.jsonl.
struct RecordedResult {
    std::string name;
    std::string why_not;                 ///< line saying why metrics.jsonl lacks the result; "": it has the result
    std::optional<Quotient> parts = {};  ///< sum and count of a mean that o.result declares
    std::string value = {};              ///< without parts: the program's name of the result
    bool shown = false;                  ///< the line of a step shows its largest element (step_value_ending)
};
/// Returns the declared results of a train step. Throws Error if two names, or a name and a standard key, are equal.
std::vector<RecordedResult> recorded_results(const Program& program);
/// Throws Error if a smaller step (is_smaller_step) has other results than the full step.
void require_same_results(const Program& full, const Program& smaller);
/// Whether the program scales the loss; metrics then have the columns "loss_scale" and "skipped".
bool has_loss_scale(const Program& program);

}  // namespace orrery
