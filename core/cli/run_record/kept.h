#pragma once
#include <string>

#include "base/json_fwd.h"
#include "run/bits.h"

namespace orrery {

class ScriptRunner;
class Session;

/// Saves the script in a run's folder: as script.lua, and in lua/ under its own name with every file that its `require`
/// read, so that it can run again from there. Throws Fault::failed naming the path.
void keep_lua(const ScriptRunner& script, const std::string& folder);

/// The code that ranks run: liborrery and the loaded plugins.
BitSources code_of(const ScriptRunner& script);
/// Returns the values of run.json about a start that are known before the ranks join.
Json start_of(const ScriptRunner& script);
/// Returns on rank 0 the values of run.json that are known after the ranks join: hosts with their ranks and devices.
/// Returns null on other ranks. Collective.
Json hosts_of(Session& session);

}  // namespace orrery
