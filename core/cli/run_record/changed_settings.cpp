#include "cli/run_record/changed_settings.h"

#include <filesystem>

#include "base/text.h"
#include "cli/run_record/kept.h"
#include "cli/script_runner.h"
#include "config/load.h"
#include "run/checkpoint/save/saved_state.h"

namespace orrery {

std::string changed_settings(const ScriptRunner& script) {
    const std::string saved = script.folder() + "/config.toml";
    if (!std::filesystem::exists(saved)) return "";
    std::string changed = changes(load_config(saved), script.as_run(), {"train", "script", "data"}, 5);
    const std::vector<std::string> files = changed_lua(script, script.folder());
    if (!files.empty()) changed += (changed.empty() ? "" : ", ") + ("text of " + join_few(files, 5));
    return changed;
}

std::string went_on_before(const ScriptRunner& script, CheckpointStore& store) {
    const int64_t from = script.command.from_step;
    if (from < 0) return "";
    bool same = false;
    try {
        same = changed_settings(script).empty();
    } catch (const Error&) {  // unknown settings count as others
    }
    return went_on_before(store, from, same);
}

}  // namespace orrery
