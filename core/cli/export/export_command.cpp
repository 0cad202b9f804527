#include "cli/export/export_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "base/env.h"
#include "base/json.h"
#include "base/text.h"
#include "cli/export/kept_script.h"
#include "cli/run_record/kept_script.h"
#include "cli/signals.h"
#include "config/load.h"
#include "plugin/loader.h"
#include "run/export/export.h"

namespace orrery {

namespace {

namespace fs = std::filesystem;

class Run {
public:
    explicit Run(const std::string& folder) : folder_(folder), config_(read_config(folder)) {
        Config& run = config_.table("run");
        const std::string name = run.require_text("store");
        const Origin asked = run.where("store");
        loader_.emplace(and_plugin_folders(config_.table("plugins").texts("path")));
        loader_->load("store", name, registry_, asked);
        store_ = registry_.store(name, asked)(config_.table("store").table(name), folder_ + "/checkpoints");
    }

    CheckpointStore& store() { return *store_; }

    /// Returns the steps that may be exported, the preferred one first. Throws Error if there are none.
    std::vector<int64_t> steps(int64_t asked) const {
        const std::vector<int64_t> all = store_->steps();
        if (all.empty())
            throw Error(fmt::format("export: no checkpoint in {}\n  train first, or name the folder of another run",
                                    store_->place()));
        std::vector<std::string> names;
        for (const int64_t step : all) names.push_back(std::to_string(step));
        if (asked >= 0) {
            if (std::find(all.begin(), all.end(), asked) == all.end())
                throw Error(fmt::format("export: --step {}: there is no such checkpoint in {}\n  there are {}", asked,
                                        store_->place(), join_few(names, 12)));
            return {asked};
        }
        std::vector<int64_t> sound;
        for (const int64_t step : all) {
            const std::string mark = store_->mark_of(step);
            if (mark.empty())
                sound.push_back(step);
            else
                std::fprintf(stderr, "skipped step %lld, it is marked as suspect: %s\n", static_cast<long long>(step),
                             quote(trim(mark)).c_str());
        }
        if (sound.empty())
            throw Error(fmt::format("export: every checkpoint in {} is marked as suspect: {}\n  choose one with --step",
                                    store_->place(), join_few(names, 12)));
        return sound;
    }

    /// How the model is published: from the checkpoint, else the run's folder, else the script saved in the folder.
    PublishedRecord record_of(const Manifest& manifest) {
        const std::string place =
            fmt::format("{}, step {}, manifest: {}", folder_, manifest.step, PublishedRecord::key);
        const Json host = parse_json(manifest.host, {"", place, 0, 0});
        if (host.is_object() && host.contains(PublishedRecord::key))
            return PublishedRecord::parse(host[PublishedRecord::key].dump(), place);
        const std::string beside = folder_ + "/published.json";
        if (fs::exists(beside)) return PublishedRecord::parse(system_env()->read_file(beside), beside);
        const std::string script = kept_script_of(folder_, config_);
        std::fprintf(stderr, "the checkpoint has no record of the published model; it is taken from %s\n",
                     script.c_str());
        try {
            return record_of_kept_script(folder_);
        } catch (const Error& problem) {
            throw Error(fmt::format("export: the run's script {} fails: {}\n  start the export in the run's working "
                                    "folder, or restore the files that the script needs",
                                    script, problem.what()),
                        problem.fault());
        }
    }

    std::vector<std::string> tokenizer() const {
        std::vector<std::string> files;
        std::error_code none;
        for (const auto& entry : fs::directory_iterator(folder_ + "/tokenizer", none))
            if (entry.is_regular_file()) files.push_back(entry.path().string());
        std::sort(files.begin(), files.end());
        return files;
    }

private:
    static Config read_config(const std::string& folder) {
        const std::string config = folder + "/config.toml";
        if (!fs::is_directory(folder))
            throw Error(
                fmt::format("export: {} is not a folder\n  name the folder of a run, for example runs/gpt", folder));
        if (fs::exists(config)) return load_config(config);
        const std::string copies = how_to_use_copies(folder);
        throw Error(fmt::format("export: {} is not a run's folder: it has no config.toml{}", folder,
                                fs::exists(folder + "/config.json")
                                    ? "\n  it is already a published model; train it with scripts/hf.lua"
                                : copies.empty() ? "\n  name a folder that orrery run has made"
                                                 : copies));
    }

    std::string folder_;
    Config config_;
    Registry registry_;
    std::optional<Loader> loader_;
    std::unique_ptr<CheckpointStore> store_;
};

/// Exports one step to `command.folder`. Throws Error before anything is read if that folder exists.
Exported write(Run& run, const ExportCommand& command, int64_t step, std::string& what) {
    const Manifest manifest = Manifest::of(run.store(), step);
    const PublishedRecord record = run.record_of(manifest);
    ExportOptions options;
    if (!command.dtype.empty()) options.dtype = parse_dtype(command.dtype);
    options.file_bytes = static_cast<int64_t>(command.file_gb * 1e9);
    options.raw = command.raw;
    options.beside = run.tokenizer();
    if (!command.raw) record.require_published(command.run);
    what = command.raw ? "params" : record.architecture;
    return export_checkpoint(run.store(), manifest, record, command.folder, options);
}

}  // namespace

int export_command(const ExportCommand& command) {
    const SignalTaker signals;  // creating it blocks stop signals, before a store creates threads
    Run run(command.run);
    const std::vector<int64_t> steps = run.steps(command.step);
    for (size_t i = 0; i < steps.size(); ++i) try {
            std::string what;
            const Exported written = write(run, command, steps[i], what);
            std::printf("%s: exported %s of step %lld, %s tensors in %s, %s of %s\n", command.folder.c_str(),
                        what.c_str(), static_cast<long long>(steps[i]), count_text(written.tensors).c_str(),
                        plural(written.files, "file").c_str(), bytes_text(written.bytes).c_str(),
                        std::string(name_of(written.dtype)).c_str());
            if (written.rounded && command.dtype.empty())
                std::printf("  f32 params are rounded to %s, the type in config.json; --dtype f32 keeps them\n",
                            std::string(name_of(written.dtype)).c_str());
            return 0;
        } catch (const Damaged& damage) {
            if (i + 1 == steps.size()) throw;
            std::fprintf(stderr, "%s\n  exporting an older checkpoint instead\n", damage.what());
        }
    return 1;
}

}  // namespace orrery
