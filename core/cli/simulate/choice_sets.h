#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "compile/compile.h"
#include "sim/search/choice.h"

namespace orrery {

/// A choice as configuration texts, "mesh.dp=4": the options that vary and that the script declares.
std::vector<std::string> sets_of(const Choice& choice, const SearchSpace& space);
/// A choice as TOML, table by table; a mapping, which is not a configuration key, becomes a comment.
std::string toml(const Choice& choice, const SearchSpace& space);

/// Whether `--keep` names the option.
bool kept(const PlanCommand& command, const std::string& option);
/// Throws Error, Fault::usage, if `--keep` names an unknown option.
void require_options(const PlanCommand& command);

/// The search space, starting from the configured choice. `options`: the [script] options that the script declares;
/// `samples`: samples per micro-batch.
SearchSpace space_of(const Compiled& compiled, const std::map<std::string, std::string>& options,
                     const PlanCommand& command, int64_t samples);

}  // namespace orrery
