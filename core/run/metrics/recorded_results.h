#pragma once
#include <optional>
#include <string>
#include <vector>

#include "compile/program_set.h"

namespace orrery {

/// A result that a script declares beside what every step shows.
struct RecordedResult {
    std::string name;
    std::string why_not;                 ///< a line that says why metrics.jsonl does not have it; "": it does
    std::optional<Quotient> parts = {};  ///< of one that o.result declares
};
/// Of a compiled train step. Throws Error at a result that is called as a key of metrics.jsonl is, or as another.
std::vector<RecordedResult> recorded_results(const Program& program);
/// Throws Error where a step of a ramp has other results than the full one.
void require_same_results(const Program& full, const Program& smaller);
/// Whether its gradients are scaled: "loss_scale" and "skipped" are columns then, not a script's own results.
bool has_loss_scale(const Program& program);

}  // namespace orrery
