#pragma once
#include <string>

namespace orrery {

class CheckpointStore;
class ScriptRunner;

/// Lists the settings of [train], [script] and [data] and the Lua files that differ from those saved in the run's
/// folder; "": none, or nothing is saved. Throws Error if they cannot be read.
std::string changed_settings(const ScriptRunner& script);

/// went_on_before() for --from-step of the script's command; "": it has none. Call it before the settings are saved.
std::string went_on_before(const ScriptRunner& script, CheckpointStore& store);

}  // namespace orrery
