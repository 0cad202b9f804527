#include "cli/data/data.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "base/json.h"
#include "base/text.h"
#include "cli/data/step_text.h"
#include "cli/run_record/kept_script.h"
#include "cli/script_runner.h"
#include "config/load.h"
#include "config/toml_text.h"
#include "run/checkpoint/format/manifest.h"
#include "run/checkpoint/save/saved_state.h"

namespace orrery {
namespace {

namespace fs = std::filesystem;

std::string tokenizer_of(ScriptRunner& script) {
    const std::string kept = script.folder() + "/tokenizer";
    std::error_code none;
    if (fs::exists(fs::path(kept) / "tokenizer.json", none)) return kept;
    return script.config().table("data").text("tokenizer", "");
}

/// Throws Error if the data has changed since the run's newest checkpoint: the samples would not be those of the run.
void refuse_changed(ScriptRunner& script, const Dataset& data) {
    std::error_code none;
    if (!fs::exists(script.folder() + "/checkpoints", none)) return;
    const auto store = script.open_store();
    const std::vector<int64_t> steps = store->steps();
    if (steps.empty()) return;
    const Json host = parse_json(Manifest::of(*store, steps.front()).host, {"", store->place() + ": manifest"});
    const std::string other =
        difference_of(host, identity_of(script.settings.seed, script.experiment->recipe->ramp, data));
    if (other.empty()) return;
    throw Error(
        fmt::format("{} differs from the data that the run in {} read up to step {}: {}\n"
                    "  restore the data and settings, or name the script to see what it would read now",
                    data.source().place(), script.folder(), steps.front(), other));
}

/// If the script is a run's folder, replaces it by the script and modules saved there, unless the user gave run.script
/// by --set.
ScriptCommand of_kept_script(ScriptCommand command) {
    const fs::path folder = command.script, lua = folder / "lua", config = folder / "config.toml";
    std::error_code none;
    const bool named = std::any_of(command.sets.begin(), command.sets.end(),
                                   [](const std::string& set) { return set.starts_with("run.script="); });
    if (named || !fs::is_directory(folder, none) || !fs::exists(config, none)) return command;
    Config saved = load_config(config.string(), {});
    std::vector<std::string> kept;
    if (const std::string script = kept_script_of(folder.string(), saved); fs::exists(script, none))
        kept.push_back("run.script=" + toml_string(script));
    if (fs::exists(lua / "orrery/init.lua", none)) kept.push_back("lua.library=" + toml_string(lua.string()));
    command.sets.insert(command.sets.begin(), kept.begin(), kept.end());
    return command;
}

int64_t vocabulary_or_none(const DataSource& source) {
    try {
        return source.vocabulary();
    } catch (const Error&) {  // vocabulary unknown: ids are not printed as bytes
        return 0;
    }
}

}  // namespace

int data_command(const ScriptCommand& given, const DataCommand& command) {
    if (given.script_help) return show_options(given, Job{});
    ScriptUse use{.prints = false};
    use.compile = [](ScriptRunner& read, Experiment experiment) {
        if (!read.data) read.experiment = std::move(experiment);  // the run's folder belongs to the first training
    };
    use.train = [](ScriptRunner& read, const DataSpec& data, const TrainOptions& options) {
        if (!read.data) read.take_down(data, options);
    };
    ScriptRunner script(of_kept_script(given), Job{}, std::move(use));
    script.load_store();
    script.run();
    if (!script.data) throw Error(script.script + ": the script trains on nothing\n  call run:train(data) in it");
    const Recipe& recipe = *script.experiment->recipe;
    if (script.settings.folder.empty()) script.settings.folder = "runs/" + recipe.name;
    const BatchSizes sizes(script.data->sequences_per_step, recipe.ramp);
    const Dataset& data = script.dataset();
    if (fs::is_directory(given.script)) refuse_changed(script, data);
    TextOfIds text;
    if (const std::string folder = tokenizer_of(script); !command.ids && !folder.empty())
        text.tokenizer = tokenizer::Tokenizer::load(folder);
    text.bytes = !command.ids && !text.tokenizer && vocabulary_or_none(data.source()) == 256;
    const int64_t first = sizes.samples_before(command.step);
    const int64_t count = sizes.samples_before(command.step + 1) - first;
    std::printf("step %s: %s, from the %s on\n", count_text(command.step).c_str(), plural(count, "sample").c_str(),
                count_text(first).c_str());
    const Experiment& experiment = *script.experiment;
    print_samples(data, first, count, text, token_order(experiment.train(), experiment.mesh),
                  [](const std::string& sample) { std::fwrite(sample.data(), 1, sample.size(), stdout); });
    return 0;
}

}  // namespace orrery
