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

namespace {

namespace fs = std::filesystem;

/// Runs the script up to its program's params and its declarations about published files.
struct KeptScript final : ScriptRunner {
    std::optional<PublishedRecord> record;

    KeptScript(const ScriptCommand& command) : ScriptRunner(command, Job{}) { settings_.mesh = Mesh(); }

    std::vector<CollectiveChoice> collectives() override { return {}; }
    void compile(Experiment experiment) override {
        record = PublishedRecord::of(experiment.train(), experiment.recipe->weights);
    }
    bool train_step_alone() const override { return true; }
    std::string summary() override { return ""; }
    void train(const DataSpec&, const TrainOptions&) override {}
    void print(const std::string&) override {}
    void gives(const GivenKey&) override {}
};

}  // namespace

PublishedRecord record_of_kept_script(const std::string& run) {
    ScriptCommand command;
    command.config = run + "/config.toml";
    Config config = load_config(command.config);
    command.script = kept_script_of(run, config);
    KeptScript script(command);
    // Modules are next to the script; for older folders without lua/, next to the original script.
    fs::path beside = fs::path(command.script).parent_path();
    const fs::path original = config.table("run").text("script", "");
    std::error_code ignored;
    if (beside == fs::path(run) && fs::exists(original, ignored)) beside = original.parent_path();
    const std::string text = system_env()->read_file(command.script);
    run_script_text(text, command.script, beside, script);
    if (!script.record) throw Error(command.script + ": the script compiled no program");
    return *script.record;
}

}  // namespace orrery
