#pragma once
#include <string>
#include <vector>

namespace orrery {

struct ScriptCommand;  // cli/commands.h

/// What `orrery preflight` finds of this host by the checks that need no other rank, where it has something to find
/// fault with, or takes more than 5 s; "": the host is fit. `folder`: where the run's files go.
std::string node_problem(const ScriptCommand& command, const std::string& folder);

/// Runs this program with other arguments; what it prints last is why it did not end with 0 within `seconds`, "" where
/// it did.
std::string problem_of_run(const std::vector<std::string>& arguments, double seconds);

}  // namespace orrery
