#pragma once
#include <string>
#include <vector>

#include "base/json_fwd.h"
#include "run/bits.h"

namespace orrery {

class ScriptRunner;
class Session;

/// Saves the script in a run's folder, so that it can run again from there: as script.lua, and in lua/ under its own
/// name with every file that `require` read. Throws Fault::failed naming the path.
void keep_lua(const ScriptRunner& script, const std::string& folder);
/// Lists the files, relative to lua/, that keep_lua() would change or add. Throws Fault::failed naming the path.
std::vector<std::string> changed_lua(const ScriptRunner& script, const std::string& folder);

/// Returns the digests of the code that ranks run: liborrery and the loaded plugins.
BitSources code_of(const ScriptRunner& script);
/// Returns the entries of run.json for a start that are known before the ranks join.
Json start_of(const ScriptRunner& script);
/// Returns on rank 0 the entries of run.json that are known after the ranks join, hosts with their ranks and devices;
/// null on other ranks. All ranks must call it.
Json hosts_of(Session& session);

}  // namespace orrery
