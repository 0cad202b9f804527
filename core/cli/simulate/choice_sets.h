#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "compile/compile.h"
#include "sim/search/choice.h"

namespace orrery {

/// A searched mesh with its options as texts, "mesh.dp=4": those that vary and that the script declares.
std::vector<std::string> sets_of(const Choice& choice, const SearchSpace& space);
/// A searched mesh with its options as TOML, by table; its mapping, which is not a configuration key, is a comment.
std::string toml(const Choice& choice, const SearchSpace& space);

/// Whether `--keep` names the option, which then does not vary in the search.
bool kept(const PlanCommand& command, const std::string& option);
/// Throws Error, Fault::usage, if `--keep` names an unknown option.
void require_options(const PlanCommand& command);

/// The space of meshes and options to search, starting from the configured one. `options`: the [script] options that
/// the script declares; `samples`: samples per micro-batch.
SearchSpace space_of(const Compiled& compiled, const std::map<std::string, std::string>& options,
                     const PlanCommand& command, int64_t samples);

}  // namespace orrery
