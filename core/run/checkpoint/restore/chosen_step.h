#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/checkpoint.h"
#include "run/script_interface.h"

namespace orrery {

/// A mark or pin made safe to print, because any program may have written it: trimmed, control characters and bytes
/// that are not UTF-8 escaped, cut after `longest` bytes.
std::string printable(std::string_view line, size_t longest = 200);

/// Whether a stray has the place of a step that is not among the committed `steps`, so that it may have been a
/// checkpoint.
bool takes_a_place(const Stray& stray, std::span<const int64_t> steps);

/// Throws Error for a step that a user named with `flag` ("--from-step") and that cannot be used for the reason `why`.
/// The message lists the steps in `there`.
[[noreturn]] void refuse_step(const std::string& flag, int64_t step, const std::string& why, const std::string& place,
                              const std::vector<int64_t>& there);

/// Throws Error if a training that resumes from `step` would have no step left to run, or would save in the place of a
/// pinned step.
void require_way(const std::string& flag, int64_t step, CheckpointStore& store, const TrainOptions& options);

/// Throws as refuse_step unless the step is committed.
void require_there(const std::string& flag, int64_t step, CheckpointStore& store);
/// Throws as refuse_step unless the step is committed and not marked as suspect. Does not check it for damage.
void require_step(const std::string& flag, int64_t step, CheckpointStore& store);

}  // namespace orrery
