// Replaces a folder by what it stands for: a run, or a published model.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/files/json_file.h"
#include "base/json.h"
#include "cli/evaluate/evaluate.h"
#include "cli/run_record/kept_script.h"
#include "config/load.h"
#include "config/toml_text.h"
#include "lua/script.h"

namespace orrery {
namespace {

namespace fs = std::filesystem;

/// The max sequence length in config.json, at most `most`.
int64_t positions_of(const std::string& file, int64_t most) {
    const Json json = read_json(file, 16 << 20);
    for (const char* key : {"max_position_embeddings", "n_positions"})
        if (json.is_object() && json.contains(key) && json.at(key).is_number_integer())
            return std::clamp<int64_t>(whole_number(json.at(key), file + ": " + key), 1, most);
    return most;
}

}  // namespace

void stand_for_folder(ScriptCommand& script, EvaluateCommand& command) {
    const fs::path folder = script.script;
    std::error_code ignored;
    if (!fs::is_directory(folder, ignored)) return;
    std::vector<std::string> under;  // settings that --set overrides
    if (fs::exists(folder / "config.toml", ignored)) {
        Config run = load_config((folder / "config.toml").string());
        if (const std::string kept = kept_script_of(folder.string(), run); fs::exists(kept, ignored))
            under.push_back("run.script=" + toml_string(kept));
        script.sets.insert(script.sets.begin(), under.begin(), under.end());
        return;
    }
    if (!fs::exists(folder / "config.json", ignored))
        throw Error(
            fmt::format("{} has neither config.toml nor config.json\n  name a run's folder, the folder of a "
                        "published model, or a script",
                        folder.string()));
    constexpr int64_t longest = 1024;
    command.published = true;
    const Config given = load_config(script.config, script.sets);
    const auto unless_given = [&](const char* table, const char* key, const std::string& value) {
        const ConfigValue* const found = given.find(table);
        const auto* const of = found ? std::get_if<std::shared_ptr<Config>>(&found->data) : nullptr;
        if (!of || !(*of)->has(key)) under.push_back(fmt::format("{}.{}={}", table, key, value));
    };
    unless_given("data", "tokens_per_sequence",
                 std::to_string(command.window.value_or(positions_of((folder / "config.json").string(), longest))));
    unless_given("train", "steps", "1");
    int64_t batch = 1;  // one sample for each rank with its own data
    if (const ConfigValue* const mesh = given.find("mesh"))
        batch = std::get<std::shared_ptr<Config>>(mesh->data)->integer("dp", 1);
    unless_given("train", "sequences_per_step", std::to_string(batch));
    under.push_back("checkpoint.load=" + toml_string(folder.string()));
    under.push_back("data.path=\"\"");
    const Config library = load_config(script.config, script.sets);
    std::string configured;
    if (const ConfigValue* const lua = library.find("lua"))
        configured = std::get<std::shared_ptr<Config>>(lua->data)->text("library", "");
    script.script = (script_library(configured) / "hf.lua").string();
    script.sets.insert(script.sets.begin(), under.begin(), under.end());
}

}  // namespace orrery
