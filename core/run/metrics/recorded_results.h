#pragma once
#include <optional>
#include <string>
#include <vector>

#include "compile/program_set.h"

namespace orrery {

/// A result that a script declares in addition to the standard columns.
struct RecordedResult {
    std::string name;
    std::string why_not;                 ///< why metrics.jsonl lacks the result, as a line; "": it has the result
    std::optional<Quotient> parts = {};  ///< sum and count of a mean that o.result declares
};
/// Results of a compiled train step. Throws Error if a name is a standard key of metrics.jsonl or another result's.
std::vector<RecordedResult> recorded_results(const Program& program);
/// Throws Error if a step of a batch ramp has other results than the full step.
void require_same_results(const Program& full, const Program& smaller);
/// Whether the gradients are scaled; metrics then have the columns "loss_scale" and "skipped".
bool has_loss_scale(const Program& program);

}  // namespace orrery
