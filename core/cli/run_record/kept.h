#pragma once
#include <string>

#include "base/json_fwd.h"
#include "run/bits.h"

namespace orrery {

class ScriptRunner;
class Session;

/// Keeps what a run's folder is to tell of it besides config.toml: script.lua, and in lua/ the script under its own
/// name with every file that it has read by `require`, which runs again from there. Throws Fault::failed naming the
/// path.
void keep_lua(const ScriptRunner& script, const std::string& folder);

/// The libraries whose code its ranks run: liborrery and the plugins that were loaded.
BitSources code_of(const ScriptRunner& script);
/// What run.json says of a start before its ranks have met.
Json start_of(const ScriptRunner& script);
/// And then: hosts with their ranks and devices. On rank 0, null elsewhere. Collective.
Json hosts_of(Session& session);

}  // namespace orrery
