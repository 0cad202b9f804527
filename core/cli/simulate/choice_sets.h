#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "compile/compile.h"
#include "sim/search/choice.h"

namespace orrery {

/// A choice in the configuration's words, "mesh.dp=4": what varies, and of that what the script declares.
std::vector<std::string> sets_of(const Choice& choice, const SearchSpace& space);
/// The same as TOML, table by table; a mapping, which is none of the configuration's, as a comment.
std::string toml(const Choice& choice, const SearchSpace& space);

/// Whether `--keep` names the option.
bool kept(const PlanCommand& command, const std::string& option);
/// Throws Error, Fault::usage, where `--keep` names what is no option.
void require_options(const PlanCommand& command);

/// What varies, and the choice that the configuration is, whose options are `options` (of [script], those that the
/// script declares). `samples`: of a micro-batch.
SearchSpace space_of(const Compiled& compiled, const std::map<std::string, std::string>& options,
                     const PlanCommand& command, int64_t samples);

}  // namespace orrery
