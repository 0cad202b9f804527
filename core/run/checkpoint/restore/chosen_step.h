#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/checkpoint.h"
#include "run/script_interface.h"

namespace orrery {

/// Makes a checkpoint's mark or pin safe to print, because any program may have written it: trims it, escapes control
/// characters and bytes that are not UTF-8, and cuts it after `longest` bytes.
std::string printable(std::string_view line, size_t longest = 200);

/// Whether an entry of a store has the name of a step that is not among `steps`, the committed ones, so that it may
/// have been a checkpoint.
bool takes_a_place(const Stray& stray, std::span<const int64_t> steps);

/// Throws Error for a step that a user named with `flag` ("--from-step") and that cannot be used for the reason `why`.
/// The message names the store's `place` and lists its steps, `there`.
[[noreturn]] void refuse_step(const std::string& flag, int64_t step, const std::string& why, const std::string& place,
                              const std::vector<int64_t>& there);

/// Throws Error if a training that resumes from `step` would have no step left to run, or would save in the place of a
/// pinned step.
void require_way(const std::string& flag, int64_t step, CheckpointStore& store, const TrainOptions& options);

/// Throws Error naming `flag` unless the step is committed in the store.
void require_there(const std::string& flag, int64_t step, CheckpointStore& store);
/// Throws Error naming `flag` unless the step is committed and not marked as suspect. Does not check it for damage.
void require_step(const std::string& flag, int64_t step, CheckpointStore& store);

}  // namespace orrery
