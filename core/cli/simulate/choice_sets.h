#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "compile/compile.h"
#include "run/script_interface.h"
#include "sim/search/choice.h"

namespace orrery {

/// Returns a searched mesh with those of its options that vary and the script declares, as texts: "mesh.dp=4".
std::vector<std::string> sets_of(const Choice& choice, const SearchSpace& space);
/// Returns a searched mesh with its options as TOML tables; the mapping, which is not a key, is a comment.
std::string toml(const Choice& choice, const SearchSpace& space);

/// Whether `--keep` names the option, so that the search does not vary it.
bool kept(const PlanCommand& command, const std::string& option);
void require_options(const PlanCommand& command);

/// Returns the mesh axis that splits the batch and over which ZeRO splits nothing (HSDP), whether or not the mesh has
/// it.
std::string replicate_axis(const Host::Options& options);

/// Returns the space of meshes and options to search, beginning at the configured one. `options`: the [script] options
/// that the script declares; `context` and `order` have the values that it lists as `one_of`. `samples`: samples per
/// micro-batch.
SearchSpace space_of(const Compiled& compiled, const Host::Options& options, const PlanCommand& command,
                     int64_t samples);

}  // namespace orrery
