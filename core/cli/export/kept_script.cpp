#include "cli/export/kept_script.h"

#include <fmt/format.h>

#include <filesystem>
#include <optional>

#include "base/env.h"
#include "cli/run_record/kept_script.h"
#include "cli/script_runner.h"
#include "config/load.h"
#include "lua/script.h"

namespace orrery {

namespace fs = std::filesystem;

PublishedRecord record_of_kept_script(const std::string& run) {
    ScriptCommand command;
    command.config = run + "/config.toml";
    Config config = load_config(command.config);
    command.script = kept_script_of(run, config);
    std::optional<PublishedRecord> record;
    ScriptUse use{.prints = false};
    use.ignores = [](const GivenKey&) { return true; };
    use.compile = [&](ScriptRunner&, const Experiment& experiment) {
        record = PublishedRecord::of(experiment.train(), experiment.recipe->weights);
    };
    use.train = [](ScriptRunner&, const DataSpec&, const TrainOptions&) {};
    ScriptRunner script(command, Job{}, std::move(use));
    script.settings.mesh = Mesh();
    script.train_step_alone = true;
    // Lua modules are next to the saved script; for older folders without lua/, next to the original script.
    fs::path beside = fs::path(command.script).parent_path();
    const fs::path original = config.table("run").text("script", "");
    std::error_code ignored;
    if (beside == fs::path(run) && fs::exists(original, ignored)) beside = original.parent_path();
    const std::string text = system_env()->read_file(command.script);
    run_script_text(text, command.script, beside, script);
    if (!record) throw Error(command.script + ": the script compiled no program");
    return *record;
}

}  // namespace orrery
