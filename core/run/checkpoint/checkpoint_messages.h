#pragma once
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "run/checkpoint/checkpoint.h"
#include "run/checkpoint/manifest.h"

namespace orrery {

// What ranks tell each other around a checkpoint. A start: {"problem", "schema": what the rank holds, ...}. A report:
// {"problem", "objects", "shards": list of [name, object, first byte], "votes": one digest per value of the schema}.

/// The part of a value that a rank holds. Throws when `local` is not of that shape, or holds partial sums.
Block box_of(const StateValue& value, const Mesh& mesh, int64_t rank);

/// [name, dtype, global shape, layout, offset, shape] of each value that a rank holds.
Json schema_of(std::span<const StateValue> state, const Mesh& mesh, int64_t rank);

/// Per value of `rank`: true when no lower rank holds the same box. Throws when ranks disagree on a value's type.
std::vector<bool> owned(const std::vector<Json>& starts, int64_t rank);

/// Throws Fault::failed when ranks that hold the same box of a value hold different bytes, naming both sides.
void count_votes(const std::vector<Json>& starts, const std::vector<Json>& reports);

/// "" when the checkpoint's tensors are those of all ranks' states; otherwise what differs. `some`: it may have more.
std::string mismatch(const Manifest& manifest, const std::vector<Json>& starts, bool some);

/// Adds every rank's objects and shards. Throws when any element of any tensor is in no shard.
void assemble(Manifest& manifest, const std::vector<Json>& starts, const std::vector<Json>& reports);

std::vector<Json> parse_messages(const std::vector<std::string>& texts);

}  // namespace orrery
