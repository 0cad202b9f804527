#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/checkpoint.h"
#include "run/script_interface.h"

namespace orrery {

/// What lies beside a step, a mark or a pin, as it is said: anybody may have written it. Without space at its ends,
/// control characters and what is no UTF-8 escaped, cut after `longest` bytes of it.
std::string printable(std::string_view line, size_t longest = 200);

/// Of what lies among the committed `steps` that which takes the place of another step: a checkpoint, for all that is
/// known.
bool takes_a_place(const Stray& stray, std::span<const int64_t> steps);

/// Throws Error for a step that a person asked for by `flag` ("--from-step") and cannot have, with the steps that there
/// are.
[[noreturn]] void refuse_step(const std::string& flag, int64_t step, const std::string& why, const std::string& place,
                              const std::vector<int64_t>& there);

/// Throws Error for a training that goes on from `step` and has no step behind it, or would save where a pinned step
/// stands.
void require_way(const std::string& flag, int64_t step, CheckpointStore& store, const TrainOptions& options);

/// Throws so unless the step is committed.
void require_there(const std::string& flag, int64_t step, CheckpointStore& store);
/// The same unless it is committed and not marked as suspect. Reads nothing of it.
void require_step(const std::string& flag, int64_t step, CheckpointStore& store);

}  // namespace orrery
